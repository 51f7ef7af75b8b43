//! The audit: damage is made by hand, named, and repaired; nothing else is, whoever works meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dqhost::message::{Claim, Due, MessageId, NewMessage, State};
use dqhost::store::{
    Audit, AuditReport, BATCH_MAX, FINDING_SAMPLES_MAX, FindingKind, Page, Settled, Settlement,
    Store,
};

use crate::contract::tools::*;

mod file;
mod keys;
mod load;
mod program;

/// No delayqueue consumer is at work in these tests.
const AT_ONCE: Duration = Duration::from_millis(1);

async fn audit(store: &dyn Store, repair: bool) -> AuditReport {
    let how = Audit {
        repair,
        settling: AT_ONCE,
    };
    store.audit(&queue(), how).await.unwrap()
}

/// Kind and number of what was found.
fn found(report: &AuditReport) -> Vec<(FindingKind, u64)> {
    let each = report.0.iter();
    each.map(|findings| (findings.kind, findings.found))
        .collect()
}

/// What happened to the findings of one kind: repaired, dead-lettered, in flight, left.
fn done(report: &AuditReport, kind: FindingKind) -> [u64; 4] {
    let findings = report.0.iter().find(|f| f.kind == kind).unwrap();
    let samples = usize::try_from(findings.found).unwrap_or(usize::MAX);
    assert_eq!(findings.samples.len(), samples.min(FINDING_SAMPLES_MAX));
    [
        findings.repaired,
        findings.dead_lettered,
        findings.in_flight,
        findings.left,
    ]
}

/// Messages in all states but moving, whose ids are known.
pub(crate) struct Filled {
    ids: BTreeSet<MessageId>,
    by_state: BTreeMap<&'static str, Vec<MessageId>>,
    /// Leases that run.
    held: Vec<Claim>,
}

impl Filled {
    fn of(&self, state: State) -> &[MessageId] {
        &self.by_state[state.as_str()]
    }
}

/// Three messages in each state.
pub(crate) async fn fill(store: &dyn Store) -> Filled {
    let mut ids = BTreeSet::new();
    for n in 0..18_u32 {
        let message = NewMessage {
            due: if n < 15 { Due::NOW } else { Due::In(LONG * n) },
            headers: vec![("k".to_owned(), n.to_string())],
            ..NewMessage::new(format!("payload {n}"))
        };
        ids.insert(message.id.clone());
        store.send(&queue(), &[message]).await.unwrap();
    }
    let mut held: Vec<Claim> = reserve(store, 12, LONG)
        .await
        .into_iter()
        .map(|delivery| delivery.claim)
        .collect();
    let mut end = async |count: usize, how: Settlement| {
        for claim in held.drain(..count) {
            assert_eq!(settle(store, &claim, how.clone()).await, Settled::Done);
        }
    };
    end(3, reject()).await;
    collect_garbage(store).await;
    end(3, reject()).await;
    end(3, nack(None)).await;
    let mut by_state = BTreeMap::new();
    // Nothing is copied to or from it.
    for state in State::ALL
        .into_iter()
        .filter(|state| *state != State::Moving)
    {
        let records = store.list(&queue(), state, ALL).await.unwrap();
        assert_eq!(records.len(), 3, "{state:?}");
        let ids = records.into_iter().map(|record| record.id).collect();
        by_state.insert(state.as_str(), ids);
    }
    Filled {
        ids,
        by_state,
        held,
    }
}

const ALL: Page = Page {
    offset: 0,
    limit: BATCH_MAX,
    payload_max: 100,
};

/// Handles all that is there: every lease that ran must have gone on, and every message is acked once
/// or is a dead letter. Those in `lost` are dead letters without a payload.
pub(crate) async fn nothing_is_lost(store: &dyn Store, filled: &Filled, lost: &[MessageId]) {
    let mut ended: Vec<MessageId> = Vec::new();
    for claim in &filled.held {
        assert_eq!(settle(store, claim, Settlement::ACK).await, Settled::Done);
        ended.push(claim.id.clone());
    }
    let pending = store.list(&queue(), State::Pending, ALL).await.unwrap();
    let ids: Vec<MessageId> = pending.into_iter().map(|record| record.id).collect();
    store.reschedule(&queue(), &ids, Due::NOW).await.unwrap();
    loop {
        let advanced = store.advance(&queue()).await.unwrap();
        let deliveries = reserve(store, 100, LONG).await;
        if deliveries.is_empty() && !advanced.more && advanced.dead_lettered == 0 {
            break;
        }
        for delivery in deliveries {
            assert!(delivery.payload.is_some(), "{delivery:?}");
            let settled = settle(store, &delivery.claim, Settlement::ACK).await;
            assert_eq!(settled, Settled::Done);
            ended.push(delivery.claim.id);
        }
    }
    for record in store.list(&queue(), State::Dead, ALL).await.unwrap() {
        let is_lost = lost.contains(&record.id);
        assert_eq!(record.payload.is_none(), is_lost, "{record:?}");
        assert!(record.last_attempt().is_some(), "{record:?}");
        ended.push(record.id);
    }
    ended.sort();
    let expected: Vec<MessageId> = filled.ids.iter().cloned().collect();
    assert_eq!(ended, expected);
    assert!(store.counts(&queue()).await.unwrap().is_drained());
}

/// The class of the last line of a message's history.
async fn class_of(store: &dyn Store, id: &MessageId) -> String {
    let record = store.get(&queue(), id).await.unwrap().unwrap();
    assert_eq!(record.state, State::Dead);
    record.last_attempt().unwrap().class.clone()
}
