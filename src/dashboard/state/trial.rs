//! The trial of a handler that is shown, or that is asked for.

use super::State;
use crate::control::{Letters, Trial};
use crate::dashboard::prompt::{Kind, Prompt};
use crate::message::QueueName;

impl State {
    /// The trial that is shown, once it has begun. Never another than the one that was asked for.
    #[must_use]
    pub fn trial(&self) -> Option<&Trial> {
        let trial = self.snapshot.trial.as_deref();
        trial.filter(|trial| self.open_trial == Some(trial.number))
    }

    /// Why there is nothing to show of the trial that is open; none while it is about to begin.
    #[must_use]
    pub fn why_no_trial(&self) -> Option<String> {
        let open = self.open_trial?;
        let refused = self.snapshot.refused_trial.as_ref();
        if let Some((_, why)) = refused.filter(|(number, _)| *number == open) {
            return Some(format!("this trial was not begun: {why}"));
        }
        let trial = self.snapshot.trial.as_ref();
        let others = [
            refused.map(|(number, _)| *number),
            trial.map(|trial| trial.number),
        ];
        let is_past = others.into_iter().flatten().any(|number| number > open);
        is_past.then(|| "this trial is not kept any more".to_owned())
    }

    /// Asks which handler is to be tried on these dead letters. The one that was tried last stands there.
    pub(in crate::dashboard) fn ask_for_handler(&mut self, queue: QueueName, letters: Letters) {
        let last = self.tried.as_ref();
        let last = last.map_or(String::new(), |last| last.file.display().to_string());
        let mut prompt = Prompt::new(Kind::Handler, &last).selected();
        prompt.letters = Some((queue, letters));
        self.prompt = Some(prompt);
    }
}
