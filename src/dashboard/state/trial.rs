//! The trial of a handler that is shown, or that is asked for.

use super::State;
use crate::control::{Letters, Trial};
use crate::dashboard::prompt::{Kind, Prompt};
use crate::message::QueueName;

impl State {
    /// The trial that is shown.
    #[must_use]
    pub fn trial(&self) -> Option<&Trial> {
        let trial = self.snapshot.trial.as_deref();
        trial.filter(|_| self.is_trial_open)
    }

    /// Asks which handler is to be tried on these dead letters. The one that was tried last stands there.
    pub(in crate::dashboard) fn ask_for_handler(&mut self, queue: QueueName, letters: Letters) {
        let last = self.tried.as_ref().map_or("", |(file, _)| file);
        let mut prompt = Prompt::new(Kind::Handler, last).selected();
        prompt.letters = Some((queue, letters));
        self.prompt = Some(prompt);
    }
}
