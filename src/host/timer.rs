//! A sleep that ends at its time. Tokio's timers count whole milliseconds and wake after the next one,
//! which is later than a message should be. Where the system has timers that can be waited for beside
//! everything else, those are used.

use std::time::Duration;

/// The longest sleep: what is longer ends without need.
const LONGEST: Duration = Duration::from_hours(1);

/// For one sleep at a time.
pub(super) struct Timer {
    /// None where the system has none.
    timer: Option<precise::Clock>,
}

impl Timer {
    /// To be called on the threads that will sleep.
    pub(super) fn new() -> Self {
        let timer = precise::Clock::new()
            .inspect_err(|error| tracing::debug!("sleeping by whole milliseconds: {error}"))
            .ok();
        Self { timer }
    }

    /// Returns after this time, or without need before it.
    pub(super) async fn sleep(&self, duration: Duration) {
        let duration = duration.min(LONGEST);
        match &self.timer {
            Some(timer) if timer.sleep(duration).await.is_ok() => {}
            _ => tokio::time::sleep(duration).await,
        }
    }
}

#[cfg(target_os = "linux")]
mod precise {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A timerfd.
    pub(super) struct Clock(AsyncFd<OwnedFd>);

    impl Clock {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            #[expect(
                deprecated,
                reason = "unsound for a type that lends what it does not own; this owns it"
            )]
            Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
        }

        pub(super) async fn sleep(&self, duration: Duration) -> io::Result<()> {
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let once = Itimerspec {
                it_interval: zero,
                // Zero would stop the timer.
                it_value: Timespec::try_from(duration.max(Duration::from_nanos(1)))
                    .map_err(|_| io::ErrorKind::InvalidInput)?,
            };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            // An earlier sleep that was given up may have left word of its end, which setting the timer
            // has made untrue.
            let mut count = [0; 8];
            self.0
                .async_io(Interest::READABLE, |timer| {
                    Ok(rustix::io::read(timer, &mut count)?)
                })
                .await?;
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod precise {
    use std::io;
    use std::time::Duration;

    pub(super) struct Clock;

    impl Clock {
        pub(super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) async fn sleep(&self, _duration: Duration) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn a_sleep_ends_at_its_time_and_not_at_that_of_one_given_up() {
        let alarm = Timer::new();
        assert_eq!(alarm.timer.is_some(), cfg!(target_os = "linux"));
        for _ in 0..20 {
            let began = Instant::now();
            tokio::select! {
                biased;
                () = alarm.sleep(Duration::MAX) => panic!("an hour cannot be over"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            // Given up when it is over, but not yet noticed.
            drop(alarm.sleep(Duration::ZERO));
            let limit = Duration::from_millis(3);
            alarm.sleep(limit).await;
            assert!(began.elapsed() >= limit);
        }
        alarm.sleep(Duration::ZERO).await;
    }
}
