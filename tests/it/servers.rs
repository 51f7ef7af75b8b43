//! Redis as it is run where it matters: behind TLS and users with few rights, watched by sentinels,
//! in a cluster.

mod acl;
mod cluster;
mod sentinel;
mod tls;
pub(crate) mod tools;
