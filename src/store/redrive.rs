//! How dead letters are put back.

/// How dead letters are redriven.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redrive {
    /// The retries of the new messages; none gives each the budget that it had.
    pub retries: Option<u32>,
    /// Those that were redriven so often already stay dead letters; none refuses none.
    pub max_redrives: Option<u32>,
}

impl Redrive {
    /// How often a message was redriven that this refuses to redrive once more.
    #[must_use]
    pub fn refuses(&self, redrives: u32) -> bool {
        self.max_redrives.is_some_and(|max| redrives >= max)
    }
}
