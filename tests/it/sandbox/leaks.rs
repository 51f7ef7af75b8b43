//! What a run makes the host keep is given back when it ends. Counted where it is made: the allocations
//! of the thread that runs handlers, less those that it frees.

use std::time::Duration;

use dqhost::runtime::{Limits, Permissions, Runtime};
use tokio::runtime::Builder;

use super::hostile::{ENDLESS, OTHERS};
use super::web::Web;
use crate::guests::{call, load_in, table};
use crate::support::guest;

/// Runs of each handler that are counted, after some that fill what is kept for the next.
const RUNS: usize = 20;
const BEFORE: usize = 3;

#[test]
fn no_run_of_a_hostile_handler_leaves_anything_behind() {
    each_leaves_nothing_behind(|runtime| runtime);
}

#[test]
fn no_run_of_a_hostile_handler_leaves_anything_behind_in_the_other_engine() {
    each_leaves_nothing_behind(Runtime::always_async);
}

fn each_leaves_nothing_behind(engine: fn(Runtime) -> Runtime) {
    // One thread, this one, so that its allocations are all there are.
    let threads = Builder::new_current_thread().enable_all().build().unwrap();
    let web = Web::start();
    let drip = web.url("/drip");
    let table = table();
    for (name, payload, class) in ENDLESS.into_iter().chain(OTHERS) {
        let time = match class {
            "timed-out" => Duration::from_millis(20),
            _ => Duration::from_hours(1),
        };
        let limits = Limits {
            time,
            time_max: time,
            memory: 8 << 20,
            ..Limits::default()
        };
        let file = match name {
            "table" => table.to_path_buf(),
            name => guest(name),
        };
        let permissions = Permissions {
            http: vec![format!("127.0.0.1:{}", web.port).parse().unwrap()],
            ..Permissions::default()
        };
        let payload = if payload == "URL" { &drip } else { payload };
        let (_runtime, handler) = load_in(engine, &file, limits, permissions);
        let run = |times: usize| {
            for _ in 0..times {
                let report = threads.block_on(handler.run(call(payload.as_bytes(), 1)));
                assert_eq!(report.outcome.class(), class, "{name}");
            }
        };
        run(BEFORE);
        let counted = allocation_counter::measure(|| run(RUNS));
        // One for each run would be a leak; a few are what libraries keep for later.
        assert!(
            counted.count_current < i64::try_from(RUNS).unwrap() / 2,
            "{name} leaves something behind: {counted:?}"
        );
    }
}
