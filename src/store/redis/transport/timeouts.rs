//! Time limits of requests.

use std::time::Duration;

use redis::{RedisError, RedisResult};

/// Between half of a time limit and all of it. Many hosts may have lost the same server in the same
/// moment, and limits that end together bring them all back together.
pub(crate) fn within(limit: Duration) -> Duration {
    limit.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// What comes of a request within a time limit.
pub(crate) async fn within_limit<T>(
    limit: Duration,
    request: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let timed_out = || RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    tokio::time::timeout(limit, request)
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}
