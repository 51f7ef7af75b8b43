//! What a store says when it does not do what it was asked.

use super::Operation;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or it did not answer in time. What was asked may have been done.
    /// Try again later.
    #[error("{store} is not reachable ({operation}): {reason}")]
    Unreachable {
        /// The store, without secrets.
        store: String,
        /// What was being done.
        operation: Operation,
        /// What the client library saw.
        reason: String,
    },
    /// It answered, and what it is or how it is set up cannot be used. Nothing was done.
    #[error("{store} cannot be used: {reason}")]
    Unusable {
        /// The store, without secrets.
        store: String,
        /// What is wrong and what mends it.
        reason: String,
    },
    /// It answered this request with an error. Nothing of this request was done.
    #[error("{store} refused {operation}: {reason}")]
    Refused {
        /// The store, without secrets.
        store: String,
        /// What was being done.
        operation: Operation,
        /// The store's words.
        reason: String,
    },
}

/// The result of a store's methods.
pub type StoreResult<T> = Result<T, StoreError>;
