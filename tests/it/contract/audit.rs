//! Audits. What they find and repair is in `it/audit`.

use std::time::Duration;

use dqhost::store::{Audit, AuditReport, Store};

use super::tools::*;

pub(crate) async fn an_audit_of_what_is_right_finds_nothing_and_changes_nothing(store: &dyn Store) {
    let how = Audit {
        repair: true,
        settling: Duration::ZERO,
    };
    let nothing = AuditReport::default();
    assert_eq!(store.audit(&queue(), how).await.unwrap(), nothing);
    let filled = crate::audit::fill(store).await;
    let before = depths(store).await;
    assert_eq!(store.audit(&queue(), how).await.unwrap(), nothing);
    assert_eq!(store.audit_store(true).await.unwrap(), nothing);
    assert_eq!(depths(store).await, before);
    crate::audit::nothing_is_lost(store, &filled, &[]).await;
    assert_eq!(store.audit(&queue(), how).await.unwrap(), nothing);
}
