//! Nothing to tidy up: a server keeps its own files.

use super::RedisStore;
use crate::store::Close;

impl Close for RedisStore {}
