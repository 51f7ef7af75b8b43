//! Who may fill the slots.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::QueueSettings;
use super::auto_slots::{AutoSlots, FIRST, SlotsReason};
use super::slot_meter::SlotMeter;
use super::unbegun::Unbegun;
use crate::store::BATCH_MAX;

/// Results of one queue that may wait for the store, for each slot, before its messages are no
/// longer reserved.
const UNSETTLED_PER_SLOT_MAX: usize = 4;

/// The same, however few slots there are.
const UNSETTLED_MAX: usize = 256;

/// How many handlers a host runs at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotCount {
    /// So many.
    Fixed(usize),
    /// As many as each queue can use.
    Auto {
        /// Of all queues together.
        most: usize,
        /// Bytes that handlers may have at a time, all together.
        memory: usize,
    },
}

/// The slots of a host, and the queues that share them.
pub(super) struct Slots {
    /// The most of all queues together.
    count: usize,
    /// Bytes for the handlers in them, if each queue gets as many as it can use.
    memory: Option<usize>,
    /// Controllers need to know them.
    cores: usize,
    /// So many free ones are worth a request to the store.
    worth: usize,
    free: Arc<Semaphore>,
    users: RwLock<Vec<Arc<SlotUser>>>,
    /// Something runs in one.
    pub were_used: Notify,
}

/// A queue that shares the slots of a host.
pub(super) struct SlotUser {
    want: Want,
    /// How many it may have by itself.
    limit: AtomicUsize,
    /// Finds out how many those are; none if a number was set.
    auto: Option<Mutex<AutoSlots>>,
    /// What it finds that out from.
    pub meter: SlotMeter,
    /// Reserved messages that wait for a thread.
    pub unbegun: Unbegun,
    /// True while messages of it may wait for a slot.
    pub wants_slots: AtomicBool,
    /// A slot became free or a result was settled: its loop has something to look at.
    pub progress: Notify,
}

impl Slots {
    /// So many slots, for runs on so many cores, of a store for which so many free ones are worth a request.
    pub(super) fn new(slots: SlotCount, cores: usize, worth: usize) -> Self {
        let (count, memory) = match slots {
            SlotCount::Fixed(count) => (count, None),
            SlotCount::Auto { most, memory } => (most, Some(memory)),
        };
        Self {
            count,
            memory,
            cores,
            worth,
            free: Arc::new(Semaphore::new(count)),
            users: RwLock::default(),
            were_used: Notify::new(),
        }
    }

    fn users(&self) -> RwLockReadGuard<'_, Vec<Arc<SlotUser>>> {
        self.users.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn users_mut(&self) -> RwLockWriteGuard<'_, Vec<Arc<SlotUser>>> {
        self.users.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A further queue shares them, or one with new settings: what was found for it so far is where it goes on,
    /// since what it has in flight runs on.
    pub(super) fn add_user(
        &self,
        settings: &QueueSettings,
        before: Option<&SlotUser>,
    ) -> Arc<SlotUser> {
        let want = Want::new(settings, self.count);
        let known = before.and_then(SlotUser::known);
        let (limit, auto) = match (self.memory, known) {
            (None, _) => (self.count, None),
            (Some(_), Some((limit, auto))) => (limit, Some(auto)),
            (Some(_), None) => (FIRST, Some(AutoSlots::new(self.cores))),
        };
        let user = Arc::new(SlotUser {
            want,
            limit: AtomicUsize::new(limit),
            auto: auto.map(Mutex::new),
            meter: SlotMeter::default(),
            unbegun: Unbegun::new(self.worth),
            wants_slots: AtomicBool::new(true),
            progress: Notify::new(),
        });
        self.users_mut().push(Arc::clone(&user));
        user
    }

    /// A queue wants none any more. The slots that it has are free when its handlers have ended.
    pub(super) fn remove_user(&self, user: &Arc<SlotUser>) {
        self.users_mut().retain(|one| !Arc::ptr_eq(one, user));
    }

    /// Bytes for the handlers in all slots, if each queue gets as many as it can use.
    pub(super) fn memory(&self) -> Option<usize> {
        self.memory
    }

    /// The most slots of all queues together.
    pub(super) fn most(&self) -> usize {
        self.count
    }

    /// The slots that queues may use now.
    pub(super) fn count(&self) -> usize {
        if self.memory.is_none() {
            return self.count;
        }
        let users = self.users();
        let all = users.iter().map(|user| user.limit());
        all.fold(0, usize::saturating_add).min(self.count)
    }

    /// Those in which something runs.
    pub(super) fn busy(&self) -> usize {
        self.count.saturating_sub(self.free.available_permits())
    }

    /// Slots became free, or one queue wants no more of them: those that do are told.
    pub(super) fn are_free(&self) {
        for user in self.users().iter() {
            if user.wants_slots.load(SeqCst) && !user.unbegun.are_awaited() {
                user.progress.notify_one();
            }
        }
    }

    /// Messages were begun, with which so many run.
    pub(super) fn have_begun(&self, user: &SlotUser, running: usize) {
        if user.auto.is_some() {
            user.meter.uses(running);
            self.were_used.notify_one();
        }
    }

    /// The slots that a queue may fill now, taken. There are none while so many of its results wait for the
    /// store that it would only fill the memory. Nor are there while so many of its messages wait for a thread
    /// that a few more are not worth a request.
    pub(super) fn take(
        &self,
        user: &Arc<SlotUser>,
        running: usize,
        unsettled: usize,
    ) -> Option<OwnedSemaphorePermit> {
        let own = user.auto.as_ref().map_or(self.count, |_| user.limit());
        if unsettled > UNSETTLED_MAX.max(own * UNSETTLED_PER_SLOT_MAX) {
            return None;
        }
        let wants =
            |other: &&Arc<SlotUser>| Arc::ptr_eq(other, user) || other.wants_slots.load(SeqCst);
        let users = self.users();
        if !users.iter().any(|one| Arc::ptr_eq(one, user)) {
            return None;
        }
        let wanting = users.iter().filter(wants).map(|other| other.want());
        let demand = Demand {
            slots: self.count,
            free: self.free.available_permits(),
            queues: users.len(),
            running,
            own: user.want(),
        };
        let mut wanted = demand.more(&wanting).min(BATCH_MAX);
        drop(users);
        if !user.unbegun.are_worth_asking(wanted) {
            return None;
        }
        loop {
            // Another queue may be faster and leave fewer.
            wanted = wanted.min(self.free.available_permits());
            let some = u32::try_from(wanted).ok().filter(|some| *some > 0)?;
            if let Ok(permits) = Arc::clone(&self.free).try_acquire_many_owned(some) {
                return Some(permits);
            }
        }
    }
}

impl SlotUser {
    /// The slots that were found for it, and from what.
    fn known(&self) -> Option<(usize, AutoSlots)> {
        let auto = self.auto.as_ref()?;
        let auto = auto.lock().unwrap_or_else(PoisonError::into_inner);
        Some((self.limit.load(SeqCst), auto.clone()))
    }

    /// Has it found anew how many slots it may have by itself, and tells its loop if those are more.
    pub(super) fn adjust(&self, next: impl FnOnce(&mut AutoSlots) -> usize) {
        let Some(auto) = &self.auto else {
            return;
        };
        let mut auto = auto.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = next(&mut auto);
        if self.limit.swap(limit, SeqCst) < limit {
            self.progress.notify_one();
        }
    }

    /// True while messages of it may wait for a slot.
    pub(super) fn wants_slots(&self) -> bool {
        self.wants_slots.load(SeqCst)
    }

    /// The slots that it may have by itself, and why; none if a number was set.
    pub(super) fn found(&self) -> Option<(usize, SlotsReason)> {
        let auto = self.auto.as_ref()?;
        let reason = auto.lock().unwrap_or_else(PoisonError::into_inner).reason();
        Some((self.limit(), reason))
    }

    /// The most slots that its settings allow.
    pub(super) fn most(&self) -> usize {
        self.want.most
    }

    /// Its part of what queues share.
    pub(super) fn weight(&self) -> usize {
        self.want.weight
    }

    fn limit(&self) -> usize {
        self.limit.load(SeqCst).min(self.want.most)
    }

    fn want(&self) -> Want {
        Want {
            most: self.limit(),
            ..self.want
        }
    }
}

/// A queue that wants slots.
#[derive(Debug, Clone, Copy)]
struct Want {
    weight: usize,
    /// The most slots that it may use.
    most: usize,
}

impl Want {
    fn new(settings: &QueueSettings, slots: usize) -> Self {
        Self {
            weight: usize::try_from(settings.weight.max(1)).unwrap_or(usize::MAX),
            most: settings.slots.unwrap_or(slots).clamp(1, slots.max(1)),
        }
    }

    /// True when it may use no more than its part of so many slots, which others with this weight in all
    /// share with it.
    fn is_satisfied_by(self, slots: usize, weight: usize) -> bool {
        self.most.saturating_mul(weight) <= slots.saturating_mul(self.weight)
    }

    /// Its share among all that want slots, itself among them: by weight. What one may not use is
    /// shared by the rest (max-min fairness).
    fn share(self, slots: usize, wanting: &(impl Iterator<Item = Self> + Clone)) -> usize {
        let weigh = |all: usize, one: Self| all.saturating_add(one.weight);
        let mut left = (slots, wanting.clone().fold(0, weigh));
        loop {
            // The share of one unit of weight only grows, so each round satisfies those of the last.
            let rest = wanting.clone().fold((slots, 0), |(slots, weight), one| {
                if one.is_satisfied_by(left.0, left.1) {
                    (slots.saturating_sub(one.most), weight)
                } else {
                    (slots, weigh(weight, one))
                }
            });
            if rest == left || self.is_satisfied_by(left.0, left.1) {
                let part = left.0.saturating_mul(self.weight).div_ceil(left.1.max(1));
                return part.min(self.most);
            }
            left = rest;
        }
    }
}

/// What is known of a host's slots when one of its queues wants some.
#[derive(Debug, Clone, Copy)]
struct Demand {
    slots: usize,
    /// Those in which nothing runs.
    free: usize,
    queues: usize,
    /// Handlers of this queue that run.
    running: usize,
    own: Want,
}

impl Demand {
    /// The slots that the queue may have more than it has: its share among those that want some. While
    /// another queue wants none, it may have as many as it leaves free, times its weight, so that the
    /// other finds slots when it wants them (dynamic thresholds, as in `runtime/shares.rs`). With fewer
    /// than two slots for each queue none is left free.
    fn more(self, wanting: &(impl Iterator<Item = Want> + Clone)) -> usize {
        let all_want = wanting.clone().count() >= self.queues;
        let share = self.own.share(self.slots, wanting);
        let share = share.saturating_sub(self.running);
        if all_want || self.slots < 2 * self.queues {
            return share;
        }
        let plain = self.free.saturating_sub(self.running).div_ceil(2);
        let weight = self.own.weight;
        let weighted = self
            .free
            .saturating_mul(weight)
            .saturating_sub(self.running);
        let weighted = weighted.div_ceil(weight.saturating_add(1));
        // One is left for each other queue, whatever the weight.
        let left_to_others = self.free.saturating_sub(self.queues - 1);
        share.min(plain.max(weighted.min(left_to_others)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A queue like any other.
    const ANY: Want = Want {
        weight: 1,
        most: usize::MAX,
    };

    /// What a queue may have more, while so many others want slots.
    fn more(demand: Demand, others: usize) -> usize {
        demand.more(&std::iter::repeat_n(ANY, others + 1))
    }

    #[test]
    fn a_queue_has_its_share_and_leaves_as_many_free_for_those_that_want_none() {
        let alone = Demand {
            slots: 8,
            free: 5,
            queues: 1,
            running: 3,
            own: ANY,
        };
        assert_eq!(more(alone, 0), 5);
        let two = Demand { queues: 2, ..alone };
        assert_eq!(more(two, 0), 1);
        assert_eq!(more(two, 1), 1);
        let greedy = Demand {
            running: 4,
            free: 4,
            ..two
        };
        assert_eq!(more(greedy, 0), 0);
        let over = Demand { running: 6, ..two };
        assert_eq!(more(over, 1), 0);
        // Those that want nothing take no share from those that do.
        let some = Demand {
            slots: 24,
            free: 24,
            queues: 10,
            running: 0,
            own: ANY,
        };
        assert_eq!(more(some, 1), 12);
        // With few slots none is left unused.
        let many = Demand { queues: 5, ..alone };
        assert_eq!(more(many, 0), 5);
        let few = Demand {
            slots: 2,
            free: 2,
            queues: 5,
            running: 0,
            own: ANY,
        };
        assert_eq!(more(few, 4), 1);
    }

    /// Those of these queues that want slots take as many as each may have, in turns, until none may
    /// have more; returns how many each has, and how many are left.
    fn fill(slots: usize, queues: usize, wanting: &[Want]) -> (Vec<usize>, usize) {
        let mut running = vec![0; wanting.len()];
        loop {
            let before = running.clone();
            for (queue, own) in wanting.iter().enumerate() {
                let demand = Demand {
                    slots,
                    free: slots - running.iter().sum::<usize>(),
                    queues,
                    running: running[queue],
                    own: *own,
                };
                let more = demand.more(&wanting.iter().copied());
                running[queue] += more.min(demand.free);
            }
            if running == before {
                let left = slots - running.iter().sum::<usize>();
                return (running, left);
            }
        }
    }

    #[test]
    fn whoever_comes_late_finds_a_slot_and_nobody_else_leaves_one_unused() {
        let left = |queues, greedy| fill(16, queues, &vec![ANY; greedy]).1;
        assert_eq!(left(1, 1), 0);
        assert_eq!(left(2, 1), 8);
        assert_eq!(left(2, 2), 0);
        for queues in 2..=7 {
            for greedy in 1..queues {
                let left = left(queues, greedy);
                assert!((1..=8).contains(&left), "{greedy} of {queues} leave {left}");
            }
        }
    }

    fn want(slots: Option<usize>, weight: u32) -> Want {
        let settings = QueueSettings {
            slots,
            weight,
            ..QueueSettings::default()
        };
        Want::new(&settings, 16)
    }

    #[test]
    fn slots_are_shared_by_weight_and_what_one_may_not_use_is_shared_by_the_rest() {
        let has = |wanting: &[Want]| fill(16, wanting.len(), wanting).0;
        assert_eq!(has(&[want(None, 3), want(None, 1)]), [12, 4]);
        assert_eq!(has(&[want(Some(2), 1), want(None, 1)]), [2, 14]);
        assert_eq!(
            has(&[want(Some(2), 9), want(None, 1), want(None, 1)]),
            [2, 7, 7]
        );
        // The first leaves so much that the second has all that it may use.
        let wanting = [want(Some(1), 5), want(Some(4), 1), want(None, 2)];
        assert_eq!(has(&wanting), [1, 4, 11]);
        // Nobody wants more.
        assert_eq!(has(&[want(Some(2), 1), want(Some(3), 7)]), [2, 3]);
        // No setting takes a queue's last slot or all of them.
        assert_eq!(has(&[want(Some(0), 0), want(Some(99), 1)]), [1, 15]);
    }

    #[test]
    fn a_heavy_queue_leaves_slots_for_those_that_want_none() {
        assert_eq!(fill(16, 2, &[want(None, 3)]), (vec![12], 4));
        assert_eq!(fill(16, 2, &[want(None, u32::MAX)]), (vec![15], 1));
        assert_eq!(fill(16, 2, &[want(Some(5), 3)]), (vec![5], 11));
        let three = [want(None, 100), want(None, 1)];
        assert!((1..=8).contains(&fill(16, 3, &three).1));
    }

    fn auto(most: usize) -> Slots {
        let memory = 1 << 30;
        Slots::new(SlotCount::Auto { most, memory }, 2, 1)
    }

    /// Takes all that it may have.
    fn take_all(slots: &Slots, user: &Arc<SlotUser>, running: usize) -> usize {
        let taken = slots.take(user, running, 0);
        taken.map_or(0, |permits| {
            let number = permits.num_permits();
            permits.forget();
            number
        })
    }

    #[test]
    fn a_queue_has_the_slots_that_were_found_for_it_and_queues_share_what_there_is() {
        let slots = auto(1000);
        let users = [(); 3].map(|()| slots.add_user(&QueueSettings::default(), None));
        assert_eq!(slots.count(), 3 * FIRST);
        for (user, found) in users.iter().zip([6, 2000, 2000]) {
            user.adjust(|_| found);
        }
        assert_eq!(slots.count(), 1000);
        let taken = [0, 1, 2].map(|one| take_all(&slots, &users[one], 0));
        assert_eq!(taken, [6, 497, 497]);
        assert_eq!((slots.busy(), take_all(&slots, &users[0], 6)), (1000, 0));
        // Those beyond a smaller number end by themselves.
        users[1].adjust(|_| 10);
        assert_eq!(take_all(&slots, &users[1], 497), 0);
    }

    #[test]
    fn more_slots_wake_the_loop_and_settings_cap_them() {
        let slots = auto(1000);
        let few = QueueSettings {
            slots: Some(4),
            ..QueueSettings::default()
        };
        let user = slots.add_user(&few, None);
        assert_eq!(user.found(), Some((4, SlotsReason::First)));
        user.adjust(|_| FIRST + 2);
        assert!(user.progress.notified().now_or_never().is_some());
        user.adjust(|_| FIRST + 1);
        assert!(user.progress.notified().now_or_never().is_none());
        assert_eq!(take_all(&slots, &user, 0), 4);
        let fixed = Slots::new(SlotCount::Fixed(8), 2, 1);
        let user = fixed.add_user(&few, None);
        user.adjust(|_| unreachable!("the number is set"));
        assert_eq!(
            (user.found(), fixed.count(), take_all(&fixed, &user, 0)),
            (None, 8, 4)
        );
    }

    #[test]
    fn new_settings_keep_the_slots_that_were_found() {
        let slots = auto(1000);
        let before = slots.add_user(&QueueSettings::default(), None);
        before.adjust(|_| 300);
        let after = slots.add_user(&QueueSettings::default(), Some(&before));
        slots.remove_user(&before);
        // What runs from before counts, and what ends makes room for others at once.
        assert_eq!(take_all(&slots, &after, 299), 1);
        let few = QueueSettings {
            slots: Some(4),
            ..QueueSettings::default()
        };
        let capped = slots.add_user(&few, Some(&after));
        assert_eq!(capped.found().map(|(found, _)| found), Some(4));
    }
}
