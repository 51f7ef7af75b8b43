//! Ticks of schedules: each is one message, none of a paused schedule is sent, and none overlaps if that is
//! not wanted.

use dqhost::message::{Due, MessageId, NewMessage, State};
use dqhost::store::{Settlement, Store, Tick, TickSent};

use super::tools::*;

fn tick(schedule: &str, number: u64, may_overlap: bool) -> Tick {
    Tick {
        schedule: schedule.to_owned(),
        message: NewMessage {
            id: MessageId::of_key(&format!("{schedule}/{number}")),
            due: Due::At(1000 + number),
            dedup_window: LONG,
            ..NewMessage::new(number.to_string())
        },
        may_overlap,
    }
}

/// What becomes of these ticks of one schedule.
async fn ask(store: &dyn Store, numbers: &[u64], may_overlap: bool) -> Vec<TickSent> {
    let ticks: Vec<Tick> = numbers.iter().map(|n| tick("s", *n, may_overlap)).collect();
    store.send_ticks(&queue(), &ticks).await.unwrap()
}

async fn pause(store: &dyn Store, schedule: &str, paused: bool) {
    let queue = queue();
    let set = store.set_schedule_paused(&queue, schedule, paused);
    set.await.unwrap();
}

pub(crate) async fn a_tick_is_one_message_whoever_sends_it(store: &dyn Store) {
    assert_eq!(store.schedules(&queue()).await.unwrap(), []);
    assert_eq!(
        ask(store, &[1, 2, 1], true).await,
        [TickSent::Sent, TickSent::Sent, TickSent::Known]
    );
    assert_eq!(depths(store).await, [0, 2, 0, 0, 0]);
    let first = reserve(store, 1, LONG).await.remove(0);
    assert_eq!(first.payload.as_deref(), Some(&b"1"[..]));
    settle(store, &first.claim, Settlement::ACK).await;
    // Also when it is gone.
    assert_eq!(ask(store, &[1], true).await, [TickSent::Known]);
    assert_eq!(ask(store, &[1], false).await, [TickSent::Known]);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(store.counts(&queue()).await.unwrap().totals.sent, 2);
    // Nothing is kept of a schedule whose ticks may overlap.
    assert_eq!(store.schedules(&queue()).await.unwrap(), []);
    let later = Tick {
        message: NewMessage {
            due: Due::In(LONG),
            ..tick("s", 3, false).message
        },
        ..tick("s", 3, false)
    };
    let sent = store.send_ticks(&queue(), &[later]).await.unwrap();
    assert_eq!(sent, [TickSent::Sent]);
    assert_eq!(depths(store).await, [1, 1, 0, 0, 0]);
}

pub(crate) async fn nothing_is_sent_of_a_paused_schedule(store: &dyn Store) {
    let before = overview(store).await.now_ms;
    // Before its first tick, and again.
    for _ in 0..2 {
        pause(store, "s", true).await;
    }
    let states = store.schedules(&queue()).await.unwrap();
    assert_eq!((states.len(), states[0].name.as_str()), (1, "s"));
    let since = states[0].paused_since_ms.unwrap();
    assert!((before..=overview(store).await.now_ms).contains(&since));
    assert_eq!(states[0].resumed_at_ms, None);
    assert_eq!(ask(store, &[1, 2], true).await, [TickSent::Paused; 2]);
    assert_eq!(ask(store, &[3], false).await, [TickSent::Paused]);
    let of_others = [tick("t", 1, true), tick("t", 2, false)];
    let sent = store.send_ticks(&queue(), &of_others).await.unwrap();
    assert_eq!(sent, [TickSent::Sent; 2]);
    assert_eq!(depths(store).await, [0, 2, 0, 0, 0]);

    for _ in 0..2 {
        pause(store, "s", false).await;
        pause(store, "never paused", false).await;
    }
    let mut states = store.schedules(&queue()).await.unwrap();
    let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["never paused", "s", "t"]);
    // It begins, once.
    let began = states.remove(0).resumed_at_ms;
    assert!((since..=overview(store).await.now_ms).contains(&began.unwrap()));
    pause(store, "never paused", false).await;
    let again = store.schedules(&queue()).await.unwrap().remove(0);
    assert_eq!((again.resumed_at_ms, again.paused_since_ms), (began, None));
    assert!(states[0].resumed_at_ms.unwrap() >= since);
    assert_eq!(states[0].paused_since_ms, None);
    // Nothing was kept of the ticks.
    assert_eq!(ask(store, &[1, 2], true).await, [TickSent::Sent; 2]);
    assert_eq!(ask(store, &[3], false).await, [TickSent::Sent]);
    pause(store, "s", true).await;
    assert_eq!(ask(store, &[4], false).await, [TickSent::Paused]);
    let paused = store.schedules(&queue()).await.unwrap().remove(1);
    assert_eq!(paused.resumed_at_ms, states[0].resumed_at_ms);
    pause(store, "s", false).await;
    // The last tick is still known.
    assert_eq!(ask(store, &[4], false).await, [TickSent::Skipped]);
}

pub(crate) async fn a_tick_is_skipped_until_the_last_one_has_ended(store: &dyn Store) {
    let skipped = async || store.schedules(&queue()).await.unwrap()[0].skipped;
    // Those of one call overlap, too.
    assert_eq!(
        ask(store, &[1, 2, 2], false).await,
        [TickSent::Sent, TickSent::Skipped, TickSent::Known]
    );
    let running = reserve_one(store, LONG).await;
    assert_eq!(ask(store, &[3], false).await, [TickSent::Skipped]);
    settle(store, &running.claim, nack(None)).await;
    assert_eq!(ask(store, &[4], false).await, [TickSent::Skipped]);
    let running = reserve_one(store, LONG).await;
    settle(store, &running.claim, nack(Some(LONG))).await;
    assert_eq!(
        ask(store, &[5, 1], false).await,
        [TickSent::Skipped, TickSent::Known]
    );
    assert_eq!(depths(store).await, [1, 0, 0, 0, 0]);
    assert_eq!(skipped().await, 4);

    let id = tick("s", 1, false).message.id;
    store.cancel(&queue(), &[id]).await.unwrap();
    // What was skipped is never sent.
    assert_eq!(
        ask(store, &[2, 3, 4, 5, 6], false).await[..4],
        [TickSent::Known; 4]
    );
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    let running = reserve_one(store, LONG).await;
    assert_eq!(running.claim.id, tick("s", 6, false).message.id);
    assert_eq!(ask(store, &[7], false).await, [TickSent::Skipped]);
    settle(store, &running.claim, Settlement::ACK).await;
    assert_eq!(
        ask(store, &[7, 8], false).await,
        [TickSent::Known, TickSent::Sent]
    );
    // One that has no attempt left has ended before it is a dead letter, and after.
    let running = reserve_one(store, LONG).await;
    settle(store, &running.claim, reject()).await;
    assert_eq!(ask(store, &[9], false).await, [TickSent::Sent]);
    let running = reserve_one(store, LONG).await;
    settle(store, &running.claim, reject()).await;
    collect_garbage(store).await;
    assert_eq!(state_of(store, &running.claim.id).await, Some(State::Dead));
    assert_eq!(ask(store, &[10], false).await, [TickSent::Sent]);
    let running = reserve_one(store, LONG).await;
    store
        .kill(&queue(), &[running.claim.id.clone()])
        .await
        .unwrap();
    assert_eq!(ask(store, &[11], false).await, [TickSent::Sent]);
    assert_eq!(skipped().await, 5);
    // Those that may overlap do.
    assert_eq!(ask(store, &[12, 13], true).await, [TickSent::Sent; 2]);
}
