//! What a sequence is made of. Numbers that pick a message, a claim or a host count back from the
//! latest and wrap, so that every script fits every state.

use proptest::prelude::*;

/// One call of a store's method, or time that passes.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send {
        count: usize,
        in_hours: u64,
        retries: u32,
    },
    /// An id that was sent before.
    SendAgain(usize),
    /// A message that has expired already.
    SendExpired,
    /// A tick of this number, which counts as sent for two hours.
    SendTick(usize),
    Advance,
    Reserve {
        max: usize,
        lease_hours: u64,
        retries_first: bool,
        /// With an advance, in one step.
        advancing: bool,
    },
    /// Within a rate of two an hour, in bursts of two, and so many in flight; any number when it is 0.
    ReserveLimited {
        max: usize,
        max_running: u32,
    },
    Settle(Vec<(usize, How)>),
    Extend(Vec<usize>, u64),
    Release(Vec<usize>),
    Cancel(Vec<usize>),
    Kill(Vec<usize>),
    /// With so many retries, and those that were redriven less often.
    Redrive(Vec<usize>, Option<u32>, Option<u32>),
    Delete(Vec<usize>),
    Beat(usize),
    Leave(usize),
    /// Exported and admitted again, so many at most.
    AwayAndBack(usize),
    /// Due in so many hours.
    Reschedule(Vec<usize>, u64),
    Pause(bool),
    /// So many hours and a minute.
    Pass(u64),
    /// From here on with the other queue.
    Turn,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Ack,
    AckAndSend {
        count: usize,
        in_hours: u64,
        elsewhere: bool,
    },
    NackNow,
    NackFor(u64),
    Reject,
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        3 => Just(How::Ack),
        3 => (1_usize..4, 0_u64..3, any::<bool>()).prop_map(|(count, in_hours, elsewhere)| {
            How::AckAndSend { count, in_hours, elsewhere }
        }),
        2 => Just(How::NackNow),
        2 => (1_u64..3).prop_map(How::NackFor),
        1 => Just(How::Reject),
    ]
}

/// Which of those there are, mostly the latest.
fn some() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..5, 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..4, 0_u64..3, 0_u32..3).prop_map(|(count, in_hours, retries)| Step::Send {
            count, in_hours, retries
        }),
        1 => (0_usize..5).prop_map(Step::SendAgain),
        1 => Just(Step::SendExpired),
        2 => (0_usize..3).prop_map(Step::SendTick),
        5 => Just(Step::Advance),
        6 => (1_usize..4, 1_u64..3, any::<bool>(), any::<bool>()).prop_map(
            |(max, lease_hours, retries_first, advancing)| Step::Reserve {
                max, lease_hours, retries_first, advancing
            }
        ),
        3 => (1_usize..4, 0_u32..4).prop_map(|(max, max_running)| Step::ReserveLimited {
            max, max_running
        }),
        6 => prop::collection::vec((0_usize..5, how()), 1..4).prop_map(Step::Settle),
        1 => (some(), 1_u64..3).prop_map(|(which, hours)| Step::Extend(which, hours)),
        1 => some().prop_map(Step::Release),
        1 => some().prop_map(Step::Cancel),
        1 => some().prop_map(Step::Kill),
        1 => (some(), prop::option::of(0_u32..3), prop::option::of(0_u32..3))
            .prop_map(|(ids, retries, max)| Step::Redrive(ids, retries, max)),
        1 => some().prop_map(Step::Delete),
        1 => (0_usize..3).prop_map(Step::Beat),
        1 => (0_usize..3).prop_map(Step::Leave),
        1 => (1_usize..6).prop_map(Step::AwayAndBack),
        2 => (some(), 0_u64..3).prop_map(|(which, hours)| Step::Reschedule(which, hours)),
        1 => prop::bool::weighted(0.4).prop_map(Step::Pause),
        3 => (1_u64..3).prop_map(Step::Pass),
        1 => Just(Step::Turn),
    ]
}

pub(crate) fn script() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..50)
}
