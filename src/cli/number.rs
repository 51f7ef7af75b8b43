//! Whole numbers of flags, with a refusal in plain words.

use std::ffi::OsStr;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::text::{cut, printable};

/// Bytes of a wrong value that a refusal repeats.
const REPEATED_MAX: usize = 80;

/// Reads a whole number within bounds.
#[derive(Debug, Clone)]
pub(super) struct WholeNumber<T> {
    least: u64,
    most: u64,
    number: PhantomData<T>,
}

/// A parser of whole numbers within these bounds. The upper bound is named only if it is one that
/// somebody chose.
pub(super) fn from<T>(bounds: RangeInclusive<u64>) -> WholeNumber<T> {
    WholeNumber {
        least: *bounds.start(),
        most: *bounds.end(),
        number: PhantomData,
    }
}

impl<T: TryFrom<u64>> WholeNumber<T> {
    fn read(&self, text: &str) -> Option<T> {
        let number = text.parse::<u64>().ok()?;
        let is_within = (self.least..=self.most).contains(&number);
        is_within.then(|| T::try_from(number).ok()).flatten()
    }

    fn bounds(&self) -> String {
        let is_chosen = !matches!(self.most, n if n == u64::from(u32::MAX) || n == u64::MAX);
        match (self.least, is_chosen) {
            (least, true) => format!(" from {least} to {}", self.most),
            (0, false) => String::new(),
            (least, false) => format!(" of at least {least}"),
        }
    }
}

impl<T: TryFrom<u64> + Clone + Send + Sync + Display + 'static> TypedValueParser
    for WholeNumber<T>
{
    type Value = T;

    fn parse_ref(&self, _: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let text = value.to_string_lossy();
        self.read(&text).ok_or_else(|| {
            let name = match arg.map(|arg| (arg.get_long(), arg.get_id())) {
                Some((Some(long), _)) => format!("--{long}"),
                Some((None, id)) => id.to_string(),
                None => "the value".to_owned(),
            };
            let bounds = self.bounds();
            let text = cut(&text, REPEATED_MAX);
            let text = printable(&text);
            let message = format!("{name} must be a whole number{bounds}, not {text}\n");
            Error::raw(ErrorKind::ValueValidation, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal<T: TryFrom<u64> + Clone + Send + Sync + Display + 'static>(
        parser: &WholeNumber<T>,
        text: &str,
    ) -> String {
        let arg = Arg::new("slots").long("slots");
        let error = parser.parse_ref(&Command::new("x"), Some(&arg), OsStr::new(text));
        error.err().unwrap().to_string()
    }

    #[test]
    fn a_refusal_names_the_flag_its_bounds_and_the_value() {
        let slots = from::<usize>(1..=4096);
        for bad in ["0", "abc", "-1", "4097", "", "1.5", "99999999999999999999"] {
            assert_eq!(
                refusal(&slots, bad),
                format!("error: --slots must be a whole number from 1 to 4096, not {bad}\n")
            );
        }
        let any = refusal(&from::<u32>(0..=u64::from(u32::MAX)), "x");
        assert_eq!(any, "error: --slots must be a whole number, not x\n");
        let some = refusal(&from::<u32>(1..=u64::from(u32::MAX)), "0");
        assert!(
            some.contains("a whole number of at least 1, not 0"),
            "{some}"
        );
    }

    proptest! {
        #[test]
        fn what_is_taken_is_within_bounds(text in "[0-9]{1,22}|-[0-9]{1,3}|.*", most in 1_u64..5000) {
            match from::<u32>(1..=most).read(&text) {
                Some(number) => prop_assert!((1..=most).contains(&u64::from(number))),
                None => prop_assert!(!text.parse::<u64>().is_ok_and(|n| (1..=most).contains(&n))),
            }
        }
    }
}
