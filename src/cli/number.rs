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
        self.read(&text)
            .ok_or_else(|| refusal(arg, &format!("a whole number{}", self.bounds()), &text))
    }
}

/// Names the flag, what is wanted, and the value.
fn refusal(arg: Option<&Arg>, wanted: &str, text: &str) -> Error {
    let name = match arg.map(|arg| (arg.get_long(), arg.get_id())) {
        Some((Some(long), _)) => format!("--{long}"),
        Some((None, id)) => id.to_string(),
        None => "the value".to_owned(),
    };
    let text = cut(text, REPEATED_MAX);
    let text = printable(&text);
    let message = format!("{name} must be {wanted}, not {text}\n");
    Error::raw(ErrorKind::ValueValidation, message)
}

/// What stands for a number that the program finds out.
pub(super) const AUTO: &str = "auto";

/// A whole number, or one that the program finds out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberOrAuto {
    Auto,
    Number(usize),
}

/// Reads [`NumberOrAuto`].
#[derive(Debug, Clone)]
pub(super) struct WholeNumberOrAuto(WholeNumber<usize>);

/// A parser of [`AUTO`], and of whole numbers within these bounds.
pub(super) fn or_auto(bounds: RangeInclusive<u64>) -> WholeNumberOrAuto {
    WholeNumberOrAuto(from(bounds))
}

impl TypedValueParser for WholeNumberOrAuto {
    type Value = NumberOrAuto;

    fn parse_ref(
        &self,
        _: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<NumberOrAuto, Error> {
        let text = value.to_string_lossy();
        if text == AUTO {
            return Ok(NumberOrAuto::Auto);
        }
        let wanted = || format!("{AUTO} or a whole number{}", self.0.bounds());
        let number = self.0.read(&text).map(NumberOrAuto::Number);
        number.ok_or_else(|| refusal(arg, &wanted(), &text))
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

    #[test]
    fn what_may_be_found_out_is_auto_or_a_number() {
        let arg = Arg::new("slots").long("slots");
        let read = |text: &str| {
            let parser = or_auto(1..=4096);
            parser.parse_ref(&Command::new("x"), Some(&arg), OsStr::new(text))
        };
        assert_eq!(read("auto").unwrap(), NumberOrAuto::Auto);
        assert_eq!(read("7").unwrap(), NumberOrAuto::Number(7));
        for bad in ["0", "Auto", "", "4097", "auto 7"] {
            assert_eq!(
                read(bad).err().unwrap().to_string(),
                format!(
                    "error: --slots must be auto or a whole number from 1 to 4096, not {bad}\n"
                )
            );
        }
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
