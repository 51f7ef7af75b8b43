//! Stores whose contents or answers are anything at all, as another program, a disk or an attacker may
//! leave them: every method of a store and every command works or says why not, without a panic or a
//! wait, and the queue beside goes on. `PROPTEST_CASES` sets how much of it is tried.

mod any;
mod keys;
mod methods;
mod program;
mod replies;
mod rows;
