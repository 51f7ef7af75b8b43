//! The mistakes that the checker must find: those of the ancestor, of other queues, and those that are
//! easily made here.

use std::time::Duration;

use crate::history::{Limits, Per};
use crate::plan::Shape;
use crate::trial::Kind;

pub(crate) struct Mistake {
    pub name: &'static str,
    pub kind: Kind,
    /// What has to happen for it to show.
    pub shape: fn() -> Shape,
    /// How it shows: words of a violation.
    pub shows: &'static str,
    pub places: &'static [Where],
}

/// Where it is made; files are named from `lua` and from `src`.
pub(crate) enum Where {
    Script {
        file: &'static str,
        old: &'static str,
        new: &'static str,
    },
    /// The new text asks `crate::mutant`.
    Source {
        file: &'static str,
        old: &'static str,
        new: &'static str,
    },
}

/// Nothing goes wrong but handlers.
fn calm() -> Shape {
    Shape {
        messages: 400,
        hosts: 3,
        slots: 8,
        lasts: Duration::from_secs(4),
        flaky: 300,
        slow: 100,
        bad: 20,
        expired: 20,
        ..Shape::default()
    }
}

/// What even a slow machine does in time.
pub(crate) fn little() -> Shape {
    Shape {
        messages: 100,
        ..calm()
    }
}

/// Hosts end with messages in flight.
fn killed() -> Shape {
    Shape { kills: 6, ..calm() }
}

/// More payloads are missing than there are slots.
fn many_removed() -> Shape {
    Shape {
        hosts: 1,
        slots: 2,
        removed: 25,
        messages: 300,
        lasts: Duration::from_secs(4),
        ..Shape::default()
    }
}

/// More are due in one moment than a script can move at once.
fn herd() -> Shape {
    Shape {
        messages: 8500,
        hosts: 2,
        slots: 32,
        lasts: Duration::from_secs(5),
        due_together: true,
        ..Shape::default()
    }
}

/// Scripts are forgotten more often than there are processes, each of which loads them once.
fn flushed() -> Shape {
    Shape {
        messages: 300,
        hosts: 2,
        slots: 4,
        flushes: 12,
        lasts: Duration::from_secs(5),
        ..Shape::default()
    }
}

/// Results arrive when their leases are over, and others have the messages in flight.
fn late() -> Shape {
    Shape {
        messages: 300,
        hosts: 3,
        slots: 40,
        late_results: 3,
        slow_again: 1000,
        lasts: Duration::from_secs(5),
        ..Shape::default()
    }
}

/// Results that arrive late are failures, and meanwhile the messages are acked.
fn late_failures() -> Shape {
    Shape {
        slow_again: 0,
        flaky: 1000,
        ..late()
    }
}

/// Many fail again and again, so that each waits longer, and nothing else keeps the machine busy.
fn failing() -> Shape {
    Shape {
        messages: 60,
        hosts: 2,
        slow: 0,
        bad: 500,
        ..calm()
    }
}

/// The server is away, and comes back, and nobody else is there.
fn outages() -> Shape {
    Shape {
        messages: 300,
        hosts: 1,
        slots: 4,
        server_kills: 2,
        lasts: Duration::from_secs(5),
        ..Shape::default()
    }
}

/// Hosts are cut off for longer than a lease while handlers run for longer still.
fn cut_off() -> Shape {
    Shape {
        messages: 40,
        hosts: 3,
        slots: 20,
        slow: 1000,
        slow_for: Some(Duration::from_secs(7)),
        holes: 3,
        lasts: Duration::from_secs(9),
        ..Shape::default()
    }
}

/// Nobody reads the terminals of hosts while handlers run for longer than a lease.
fn stalled() -> Shape {
    Shape {
        messages: 120,
        hosts: 3,
        slots: 20,
        terminals: 3,
        stalls: 2,
        slow: 500,
        slow_for: Some(Duration::from_secs(5)),
        lasts: Duration::from_secs(12),
        ..Shape::default()
    }
}

/// Hosts change their settings while handlers run that need their leases renewed.
fn reloaded() -> Shape {
    Shape {
        messages: 100,
        hosts: 3,
        slots: 20,
        reloads: 30,
        slow: 500,
        slow_for: Some(Duration::from_secs(5)),
        lasts: Duration::from_secs(12),
        ..Shape::default()
    }
}

/// More comes than the rate lets go, and hosts are killed.
pub(crate) fn limited() -> Shape {
    Shape {
        messages: 240,
        hosts: 3,
        slots: 8,
        lasts: Duration::from_secs(3),
        kills: 6,
        patient: true,
        limits: Some(Limits {
            per: Per::Queue,
            rate: 20,
            burst: 20,
            running: 12,
        }),
        ..Shape::default()
    }
}

/// More is there than may run, and all of it takes a while.
fn crowded() -> Shape {
    Shape {
        messages: 120,
        hosts: 3,
        slots: 8,
        lasts: Duration::from_secs(1),
        due_together: true,
        slow: 1000,
        slow_for: Some(Duration::from_millis(100)),
        limits: Some(Limits {
            per: Per::Queue,
            rate: 10_000,
            burst: 10_000,
            running: 4,
        }),
        ..Shape::default()
    }
}

/// What takes long is of one key, of which few may run, and the others have next to nothing to do.
pub(crate) fn keyed() -> Shape {
    Shape {
        messages: 60,
        hosts: 3,
        slots: 20,
        lasts: Duration::from_secs(3),
        slow: 150,
        slow_for: Some(Duration::from_millis(2500)),
        patient: true,
        limits: Some(Limits {
            per: Per::Key,
            rate: 30,
            burst: 10,
            running: 2,
        }),
        ..Shape::default()
    }
}

/// One key has more messages than can be handled, and two have few.
pub(crate) fn turns() -> Shape {
    Shape {
        messages: 300,
        hosts: 2,
        slots: 2,
        lasts: Duration::from_secs(2),
        slow: 1000,
        slow_for: Some(Duration::from_millis(50)),
        turns: true,
        ..Shape::default()
    }
}

/// Hosts begin anew, and look back for ticks.
fn ticking() -> Shape {
    Shape {
        messages: 60,
        hosts: 2,
        slots: 4,
        kills: 5,
        lasts: Duration::from_secs(4),
        ticks_every: Some(Duration::from_millis(100)),
        ..Shape::default()
    }
}

/// No host can send ticks for a while, and none begins anew.
fn ticking_without_a_store() -> Shape {
    Shape {
        kills: 0,
        server_kills: 3,
        ..ticking()
    }
}

/// Handlers are replaced while they run.
fn swapped() -> Shape {
    Shape {
        messages: 40,
        hosts: 2,
        slots: 20,
        swaps: 8,
        slow: 500,
        slow_for: Some(Duration::from_millis(1500)),
        lasts: Duration::from_secs(4),
        ..Shape::default()
    }
}

/// A part of what is sent has expired.
fn aged() -> Shape {
    Shape {
        expired: 100,
        ..little()
    }
}

macro_rules! mistakes {
    ($($name:literal, $kind:ident, $shape:ident, $shows:literal, [$($place:ident $file:literal: $old:literal => $new:literal),+ $(,)?];)*) => {
        pub(crate) const MISTAKES: &[Mistake] = &[$(Mistake {
            name: $name,
            kind: Kind::$kind,
            shape: $shape,
            shows: $shows,
            places: &[$(Where::$place { file: $file, old: $old, new: $new }),+],
        }),*];
    };
}

mistakes! {
    // A late ack ends what another host has in flight (delayqueue).
    "unfenced", Redis, late, "and went on as", [Script "include/held.lua":
        "\n      and (left_now[i] or lefts[i]) == lefts[i]\n      and (tries_now[i] or '') == tries[i]" => ""];
    // A late nack puts back what is acked (delayqueue: `zrank ~= nil` is always true).
    "late-nack-revives", Redis, late_failures, "is not so in the end", [Script "nack.lua":
        "  if ours[i] then\n    failed" => "  if true then\n    failed"];
    // Due times are cut to seconds (delayqueue).
    "seconds", Redis, calm, "ms early", [Script "include/enqueue.lua":
        "later[#later + 1] = score(due_ms)" => "later[#later + 1] = score(math.floor(due_ms / 1000) * 1000)"];
    // A send that is cut in half (delayqueue: three commands).
    "half-a-send", Redis, calm, "is lost", [Script "include/enqueue.lua":
        "  redis.call('MSET', unpack(new.payloads))\n" =>
        "  redis.call('MSET', unpack(new.payloads))\n  if now_ms % 5 == 0 then return end\n"];
    // What was handled is forgotten at once, and a repeated send is another message (most queues).
    "forgets-ids", Redis, calm, "runs twice as attempt 1", [Script "include/enqueue.lua":
        "  if #new.kept > 0 then redis.call('ZADD', keys.dedup, unpack(new.kept)) end\n" => ""];
    // All that is due is moved at once (delayqueue: `unpack` fails at 8,000).
    "unbounded", Redis, herd, "is still ready", [Source "store/redis/advance.rs":
        "scripts::PENDING_TO_READY.call(k, scripts::NO_MORE);\n    command.arg(ADVANCE_STEP);" =>
        "scripts::PENDING_TO_READY.call(k, scripts::NO_MORE);
    command.arg(if crate::mutant::is(\"unbounded\") { 100_000 } else { ADVANCE_STEP });"];
    // A slot is lost with each payload that is missing (delayqueue's fetch limit).
    "slot-leak", Redis, many_removed, "is still ready", [Source "host/work.rs":
        "        return (nothing_ran(Outcome::PayloadMissing), Some(slot));" =>
        "        if crate::mutant::is(\"slot-leak\") {
            std::mem::forget(slot);
            return (nothing_ran(Outcome::PayloadMissing), None);
        }
        return (nothing_ran(Outcome::PayloadMissing), Some(slot));"];
    // Taken from its list, and kept nowhere (BRPOP).
    "no-lease", Redis, killed, "is lost", [Script "include/reserve.lua":
        "redis.call('ZADD', unack, unpack(leases))\n" => "\n"];
    // A lease expires too soon, while its handler runs.
    "short-leases", Redis, calm, "before its lease", [Script "unack_to_retry.lua":
        "'-inf', score(now_ms), 'LIMIT'" => "'-inf', score(now_ms + 1900), 'LIMIT'"];
    // What a lease has expired for, or was nacked at once, goes nowhere.
    "lost-after-lease", Redis, killed, "is lost", [Script "include/fail.lua":
        "  if #at_once > 0 then redis.call('LPUSH', keys.retry, unpack(at_once)) end\n" => ""];
    // A nack's delay is passed over.
    "no-delay", Redis, failing, "before its delay", [Script "include/fail.lua":
        "      if entry.delay_ms then" => "      if false then"];
    // Retries never run out.
    "endless-retries", Redis, calm, "runs as attempt", [Script "include/fail.lua":
        "string.format('%d', remaining - 1)" => "string.format('%d', remaining)"];
    // What is promoted stays where it was.
    "promoted-again", Redis, failing, "before its delay", [Script "pending_to_ready.lua":
        "  redis.call('ZREMRANGEBYRANK'" => "  if now_ms % 2 == 0 then return result end\n  redis.call('ZREMRANGEBYRANK'"];
    // What has expired runs.
    "expired-runs", Redis, calm, "runs although it has expired", [Script "include/reserve.lua":
        "then return tonumber(at) <= now_ms end" => "then return false end"];
    // The last byte of a payload is lost.
    "cut-payload", Redis, calm, "another payload", [Script "include/enqueue.lua":
        "payloads[#payloads + 1] = payload" => "payloads[#payloads + 1] = string.sub(payload, 1, -2)"];
    // An ack is counted twice.
    "counted-twice", Redis, calm, "the store counts", [Script "include/acked.lua":
        "redis.pcall('HINCRBY', stats, 'acked', #done)" => "redis.pcall('HINCRBY', stats, 'acked', #done * 2)"];
    // Scripts are loaded once, and never again.
    "scripts-loaded-once", Redis, flushed, "is still", [Source "store/redis/transport/connection.rs":
        "if !unknown.is_empty() {" =>
        "if !unknown.is_empty() && !crate::mutant::is_again(\"scripts-loaded-once\") {"];
    // An error of the store ends the loop for good.
    "loop-ends", Redis, outages, "is still", [Source "host/queue_worker.rs":
        "                // A look alone comes next" =>
        "                if crate::mutant::is(\"loop-ends\") {
                    std::future::pending::<()>().await;
                }
                // A look alone comes next"];
    // Leases are not renewed.
    "no-renewal", Redis, calm, "is still", [Source "host/leases.rs":
        "    let due = served.in_flight.to_renew(why == Why::Killed);\n" =>
        "    let mut due = served.in_flight.to_renew(why == Why::Killed);
    if crate::mutant::is(\"no-renewal\") {
        due.clear();
    }\n"];
    // A handler goes on when its lease could not be renewed.
    "not-stopped", Redis, cut_off, "runs twice at once", [Source "host/leases.rs":
        "        for claim in served.in_flight.give_up_ending(margin(lease)) {" =>
        "        let ending = if crate::mutant::is(\"not-stopped\") {
            Vec::new()
        } else {
            served.in_flight.give_up_ending(margin(lease))
        };
        for claim in ending {"];
    // The screen has a thread that leases, signals and the store use.
    "shared-screen", Redis, stalled, "runs twice at once", [Source "dashboard/thread.rs":
        "        let (sender, ended) = oneshot::channel();\n" =>
        "        let (sender, ended) = oneshot::channel();
        if crate::mutant::is(\"shared-screen\") {
            tokio::spawn(async move {
                let end = match run_until(setup, channels, end, Arc::default()).await {
                    Ok(()) => DashboardEnd::Left,
                    Err(error) => DashboardEnd::TerminalGone(error),
                };
                let _ = sender.send(end);
            });
            return Ok(Self { ended, unread: Arc::default() });
        }\n"];
    // What runs when settings change is left alone.
    "swap-drops-leases", Redis, reloaded, "runs twice at once", [Source "host/changes.rs":
        "        let _ = reserves_no_more.send(());\n        // Whoever" =>
        "        let _ = reserves_no_more.send(());
        let mut leases = Some(self.leases);
        if crate::mutant::is(\"swap-drops-leases\") {
            leases = None;
        }
        // Whoever", Source "host/changes.rs":
        "        drop(self.leases);\n        queues.forget" => "        drop(leases);\n        queues.forget"];
    // A run that ends on a handler which was replaced is forgotten.
    "swap-drops-runs", Redis, swapped, "is still", [Source "host/queue_worker.rs":
        "            let (report, slot) = run(&served, &handler, &mut delivery, stop, slot).await;\n" =>
        "            let (report, slot) = run(&served, &handler, &mut delivery, stop, slot).await;
            if crate::mutant::is(\"swap-drops-runs\")
                && !Arc::ptr_eq(&handler, &served.handler.get())
            {
                return;
            }\n"];
    // The time of a rate is forgotten when a host begins.
    "limiter-forgets", Redis, limited, "by the rate", [Script "heartbeat.lua":
        "redis.call('ZCARD', hosts)\nredis.call('HLEN', info)\n" =>
        "redis.call('ZCARD', hosts)\nredis.call('HLEN', info)
if ARGV[2] ~= '' and not redis.call('ZSCORE', hosts, ARGV[1]) then
  redis.call('DEL', '{dp:chaos}:limits')
end\n"];
    // What others have in flight does not count.
    "runs-too-many", Redis, crowded, "run at once", [Script "include/room.lua":
        "if running_max > 0 then" => "if false then"];
    // The messages of another key count for a key.
    "counts-another-key", Redis, keyed, "waits for another key", [Script "include/header_key.lua":
        "  local value = text and (plain_value(text) or decoded_value(text)) or ''\n" =>
        "  local value = ''\n"];
    // The key with most messages keeps its turn.
    "starves", Redis, turns, "of another key go first", [Script "fair_to_unack.lua":
        "      start = start + step\n" => ""];
    // The id of a tick is forgotten once its message is handled.
    "tick-twice", Redis, ticking, "runs twice as attempt 1", [Source "schedule.rs":
        "                .saturating_add(CLOCKS_DIFFER_MAX),\n" =>
        "                .saturating_add(CLOCKS_DIFFER_MAX)
                .mul_f64(if crate::mutant::is(\"tick-twice\") { 0.0 } else { 1.0 }),\n"];
    // A tick that the store did not accept counts as sent.
    "tick-lost", Redis, ticking_without_a_store, "is lost", [Source "host/schedules.rs":
        "            Err(error) => {\n" =>
        "            Err(error) => {
                for one in &mut schedules {
                    if crate::mutant::is(\"tick-lost\") {
                        one.until = Some(now);
                    }
                }\n"];
    // A message is acked before its handler has run.
    "acked-first", Redis, calm, "is lost", [Source "host/queue_worker.rs":
        "        let lease = served.settings.lease;\n" =>
        "        let lease = served.settings.lease;
        if crate::mutant::is(\"acked-first\") {
            let (served, claim) = (Arc::clone(&served), delivery.claim.clone());
            tokio::spawn(async move {
                let ack = [(claim, crate::store::Settlement::ACK)];
                let _ = served.shared.store.settle(&served.queue, &ack).await;
            });
        }\n"];
    // The same mistakes in the file.
    "file-unfenced", File, late, "and went on as", [
        Source "store/sqlite/settle.rs":
            "    let mut ack_statement = tx.tx.prepare_cached(ACK)?;\n" =>
            "    let mut ack_statement = tx.tx.prepare_cached(if crate::mutant::is(\"file-unfenced\") {
        \"DELETE FROM messages WHERE seq = ?1 AND ?2 = ?2 AND queue = ?3 AND id = ?4 AND state = 4\"
    } else {
        ACK
    })?;\n"];
    "file-forgets-ids", File, calm, "runs twice as attempt 1", [Source "store/sqlite/send.rs":
        "            if !window.is_zero() {" => "            if !window.is_zero() && !crate::mutant::is(\"file-forgets-ids\") {"];
    "file-early", File, calm, "ms early", [Source "store/sqlite/advance.rs":
        "first_up_to(tx, State::Pending, signed(tx.now.ms))?" =>
        "first_up_to(tx, State::Pending, signed(tx.now.ms) + i64::from(crate::mutant::is(\"file-early\")) * 900)?"];
    "file-short-leases", File, calm, "before its lease", [Source "store/sqlite/advance.rs":
        "first_up_to(tx, State::Unack, signed(tx.now.ms))?" =>
        "first_up_to(tx, State::Unack, signed(tx.now.ms) + i64::from(crate::mutant::is(\"file-short-leases\")) * 1900)?"];
    "file-endless-retries", File, calm, "runs as attempt", [Source "store/sqlite/settle.rs":
        "self.retries_left - i64::from(!is_over)," =>
        "self.retries_left - i64::from(!is_over && !crate::mutant::is(\"file-endless-retries\")),"];
    "file-limiter-forgets", File, limited, "by the rate", [Source "store/sqlite/limits.rs":
        "            keep(tx, RATE, tat)?;" =>
        "            if !crate::mutant::is(\"file-limiter-forgets\") {
                keep(tx, RATE, tat)?;
            }"];
    "file-counts-another-key", File, keyed, "waits for another key", [
        Source "store/sqlite/keyed.rs":
            "                let key = self.by.key_of(&headers(&json)).to_owned();\n" =>
            "                let mut key = self.by.key_of(&headers(&json)).to_owned();
                if crate::mutant::is(\"file-counts-another-key\") {
                    key.clear();
                }\n",
        Source "store/sqlite/keyed.rs":
            "        Ok(self.by.key_of(&headers(&json)) == key\n" =>
            "        let is_any = crate::mutant::is(\"file-counts-another-key\");
        Ok((is_any || self.by.key_of(&headers(&json)) == key)\n"];
    "file-starves", File, turns, "of another key go first", [Source "store/sqlite/fair.rs":
        "            start = start.saturating_add(stride);" =>
        "            if !crate::mutant::is(\"file-starves\") {
                start = start.saturating_add(stride);
            }"];
    "file-expired-runs", File, aged, "runs although it has expired", [Source "store/sqlite/deliver.rs":
        "        expired: expiry::is_expired(&headers, now_ms)," =>
        "        expired: expiry::is_expired(&headers, now_ms) && !crate::mutant::is(\"file-expired-runs\"),"];
    "file-forgets-expired", File, killed, "is still unack", [Source "store/sqlite/advance.rs":
        "        if let Some(held) = Held::of_expired(tx.tx, seq)? {" =>
        "        if crate::mutant::is(\"file-forgets-expired\") {
            continue;
        }
        if let Some(held) = Held::of_expired(tx.tx, seq)? {"];
}
