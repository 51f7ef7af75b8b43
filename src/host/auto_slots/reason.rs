//! Why a queue has as many slots as it has, for people.

/// Why a queue has as many slots as it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SlotsReason {
    /// Nothing is known yet.
    #[default]
    First,
    /// More slots do more.
    Grows,
    /// It has all that it may have.
    Most,
    /// There are fewer messages than slots.
    Unused,
    /// Handlers wait for a core.
    Cores,
    /// The store takes longer than it did.
    Store,
    /// Handlers have all memory that they may have.
    Memory,
    /// What handlers wait for takes longer, the more of them there are.
    Outside,
    /// Half of the slots are tried.
    Trial,
}

impl SlotsReason {
    /// The reason in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::First => "little is known of the handler yet",
            Self::Grows => "more at a time get more done",
            Self::Most => "as many as it may have",
            Self::Unused => "fewer messages than slots",
            Self::Cores => "handlers wait for a core",
            Self::Store => "the store takes longer than before",
            Self::Memory => "handlers use the memory of --memory-total",
            Self::Outside => "with more, handlers only wait longer",
            Self::Trial => "trying whether half get as much done",
        }
    }
}
