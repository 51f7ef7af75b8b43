//! The dashboard: every screen as it is drawn, every key, and the whole of it in a terminal.

mod cast;
mod dead;
mod figures;
mod fill;
mod film;
mod find;
mod hostile;
mod keys;
mod outage;
mod recorded;
mod sample;
mod screens;
mod settings;
mod sizes;
mod stalled;
mod tasks;
mod terminal;
mod trial;
pub(crate) mod tty;
mod undo;
mod walk;
