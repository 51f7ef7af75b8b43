//! The work that is counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dqhost::message::{Attempt, Claim, Due, NewMessage, Outgoing, QueueName};
use dqhost::runtime::{Call, Limits, Permissions, Runtime};
use dqhost::store::redis::{RedisOptions, RedisStore};
use dqhost::store::{First, Reservation, Settlement, Store};
use dqhost::verdict::Outcome;
use tokio::runtime::Runtime as Threads;

use crate::counted::{Costs, CountedRedis};
use crate::support::{PATIENCE, guest};

/// Each work is done so often, and the least is what it costs: how a reply is cut into pieces on its
/// way may add an allocation.
const REPEATS: usize = 5;

/// Messages of a batch.
const BATCH: usize = 64;

/// Runs of a handler.
const RUNS: usize = 100;

const LEASE: Duration = Duration::from_hours(1);

struct World {
    redis: CountedRedis,
    store: Arc<dyn Store>,
    queue: QueueName,
    /// One thread, this one, so that its allocations are all there are.
    threads: Threads,
}

fn messages(count: usize, due: Due) -> Vec<NewMessage> {
    let one = |_| NewMessage {
        due,
        ..NewMessage::new(vec![b'x'; 100])
    };
    (0..count).map(one).collect()
}

fn wanted(max: usize) -> Reservation {
    Reservation {
        max,
        lease: LEASE,
        first: First::Ready,
        retries_default: 3,
    }
}

fn attempt() -> Attempt {
    Attempt {
        attempt: 1,
        at_ms: 1_795_000_000_000,
        class: "nacked".to_owned(),
        reason: "a reason of some words".to_owned(),
        duration_ms: Some(1),
        host: "host".to_owned(),
        handler: "handler".to_owned(),
        log: String::new(),
    }
}

impl World {
    fn start() -> Self {
        let redis = CountedRedis::start();
        let threads = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let options = RedisOptions::new(redis.url());
        let store: Arc<dyn Store> = Arc::new(threads.block_on(RedisStore::open(&options)).unwrap());
        Self {
            redis,
            store,
            queue: "q".parse().unwrap(),
            threads,
        }
    }

    /// What one work costs. Each time it begins with an empty queue and what `prepare` makes of it.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "closures are written where they are given"
    )]
    fn count<P>(&self, prepare: impl AsyncFn(&Self) -> P, work: impl AsyncFn(&Self, P)) -> Costs {
        let once = || {
            for key in self
                .redis
                .server()
                .command::<Vec<String>>(&["KEYS", "{dp:*"])
            {
                self.redis.server().command::<()>(&["DEL", &key]);
            }
            let prepared = self.threads.block_on(prepare(self));
            self.redis.reset();
            let mut work = Some(work(self, prepared));
            let counted = allocation_counter::measure(|| {
                self.threads.block_on(work.take().unwrap());
            });
            let [trips, sent, in_scripts, _] = self.redis.costs().numbers();
            Costs::from([trips, sent, in_scripts, counted.count_total])
        };
        // The first connects and loads scripts.
        once();
        (0..REPEATS).map(|_| once()).reduce(Costs::least).unwrap()
    }

    async fn send(&self, messages: Vec<NewMessage>) {
        self.store.send(&self.queue, &messages).await.unwrap();
    }

    /// Messages whose time has come, still pending.
    async fn due(&self, count: usize) {
        self.due_after(count, async || ()).await;
    }

    /// A message whose time has come, and which was seen coming.
    async fn foreseen(&self) {
        let look = async || {
            self.store.advance(&self.queue).await.unwrap();
        };
        self.due_after(1, look).await;
    }

    async fn due_after(&self, count: usize, meanwhile: impl AsyncFn()) {
        let due = Due::In(Duration::from_millis(200));
        let sent = self.store.send(&self.queue, &messages(count, due)).await;
        meanwhile().await;
        let last = sent
            .unwrap()
            .iter()
            .filter_map(|s| s.due_at_ms)
            .max()
            .unwrap();
        let began = std::time::Instant::now();
        loop {
            let (seconds, us): (u64, u64) = self.redis.server().command(&["TIME"]);
            if seconds * 1000 + us / 1000 >= last {
                return;
            }
            assert!(began.elapsed() < PATIENCE);
        }
    }

    async fn reserved(&self, count: usize) -> Vec<Claim> {
        self.send(messages(count, Due::NOW)).await;
        let deliveries = self
            .store
            .reserve(&self.queue, wanted(count))
            .await
            .unwrap();
        deliveries.into_iter().map(|d| d.claim).collect()
    }

    /// How deliveries end that are all settled alike.
    fn settle(&self, how: impl Fn() -> Settlement) -> Costs {
        self.count(
            async |world| {
                let claims = world.reserved(BATCH).await;
                claims.into_iter().map(|claim| (claim, how())).collect()
            },
            async |world, settlements: Vec<_>| {
                let answers = world.store.settle(&world.queue, &settlements).await;
                assert_eq!(answers.unwrap().len(), BATCH);
            },
        )
    }
}

fn sends(world: &World) -> Vec<(String, Costs)> {
    let send = |count, due| {
        let prepare = async |_: &World| messages(count, due);
        world.count(prepare, async |world, messages| world.send(messages).await)
    };
    let hour = Due::In(Duration::from_hours(1));
    vec![
        ("send 1, due now".to_owned(), send(1, Due::NOW)),
        ("send 1, due later".to_owned(), send(1, hour)),
        ("send 1000, due later".to_owned(), send(1000, hour)),
    ]
}

fn deliveries(world: &World) -> Vec<(String, Costs)> {
    let advance = async |world: &World, ()| {
        world.store.advance(&world.queue).await.unwrap();
    };
    let reserve = async |world: &World, ()| {
        let reserved = world.store.reserve(&world.queue, wanted(BATCH)).await;
        assert_eq!(reserved.unwrap().len(), BATCH);
    };
    let both = async |world: &World, ()| {
        let (queue, wanted) = (&world.queue, wanted(BATCH));
        let (_, reserved) = world
            .store
            .advance_and_reserve(queue, wanted)
            .await
            .unwrap();
        assert_eq!(reserved.len(), BATCH);
    };
    let extend = async |world: &World, claims: Vec<Claim>| {
        world
            .store
            .extend(&world.queue, &claims, LEASE)
            .await
            .unwrap();
    };
    let one = async |world: &World, ()| {
        let reserved = world
            .store
            .advance_and_reserve(&world.queue, wanted(1))
            .await;
        let (_, reserved) = reserved.unwrap();
        assert_eq!(reserved[0].payload.as_deref(), Some(&[b'x'; 100][..]));
    };
    vec![
        (
            "advance and reserve, 1 due, foreseen".to_owned(),
            world.count(async |w| w.foreseen().await, one),
        ),
        (
            "advance, nothing to do".to_owned(),
            world.count(async |_| (), advance),
        ),
        (
            "advance, 64 due".to_owned(),
            world.count(async |w| w.due(BATCH).await, advance),
        ),
        (
            "reserve 64".to_owned(),
            world.count(async |w| w.send(messages(BATCH, Due::NOW)).await, reserve),
        ),
        (
            "advance and reserve, 64 due".to_owned(),
            world.count(async |w| w.due(BATCH).await, both),
        ),
        (
            "extend 64".to_owned(),
            world.count(async |w| w.reserved(BATCH).await, extend),
        ),
    ]
}

fn ends(world: &World) -> Vec<(String, Costs)> {
    let ack = Settlement::Ack { outbox: Vec::new() };
    let send_along = || Settlement::Ack {
        outbox: vec![Outgoing {
            queue: world.queue.clone(),
            message: NewMessage::new("x"),
        }],
    };
    let nack = || Settlement::Nack {
        delay: Some(Duration::from_mins(1)),
        attempt: attempt(),
    };
    let reject = || Settlement::Reject { attempt: attempt() };
    vec![
        ("ack 64".to_owned(), world.settle(|| ack.clone())),
        (
            "ack 64, each with a message".to_owned(),
            world.settle(send_along),
        ),
        ("nack 64".to_owned(), world.settle(nack)),
        ("reject 64".to_owned(), world.settle(reject)),
    ]
}

/// A fresh sandbox for each message.
fn runs() -> Vec<(String, Costs)> {
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let runtime = Runtime::new(1, Limits::default(), Permissions::default(), None).unwrap();
    let call = || Call {
        id: "019a2b3c-0000-7000-8000-000000000099".to_owned(),
        queue: "default".to_owned(),
        payload: vec![b'x'; 100],
        headers: Vec::new(),
        attempt: 1,
        attempts_max: 4,
        sent_at_ms: Some(1_795_000_000_000),
        due_at_ms: None,
    };
    let count = |name: &str| {
        let handler = runtime.load(&runtime.read(&guest(name)).unwrap()).unwrap();
        let once = || {
            let counted = allocation_counter::measure(|| {
                for _ in 0..RUNS {
                    let report = threads.block_on(handler.run(call()));
                    assert_eq!(report.outcome, Outcome::Acked);
                }
            });
            Costs::of_process(counted.count_total)
        };
        once();
        let costs = (0..REPEATS).map(|_| once()).reduce(Costs::least).unwrap();
        (format!("run {name} {RUNS} times"), costs)
    };
    vec![count("noop"), count("echo")]
}

pub(crate) fn count_all() -> BTreeMap<String, Costs> {
    let world = World::start();
    [sends(&world), deliveries(&world), ends(&world), runs()]
        .into_iter()
        .flatten()
        .collect()
}
