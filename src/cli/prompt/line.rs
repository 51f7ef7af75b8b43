//! A typed line as words.

/// The words of a line, quoted with ' or " as in a shell. A word that begins a JSON object or list goes on
/// to its end as it is, quotes and blanks included.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match json_end(rest) {
            Some(end) => (rest[..end].to_owned(), &rest[end..]),
            None => word(rest)?,
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// Where the JSON object or list ends with which the text begins.
fn json_end(text: &str) -> Option<usize> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let mut values =
        serde_json::Deserializer::from_str(text).into_iter::<&serde_json::value::RawValue>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// The first word, without its quotes, and what follows.
fn word(text: &str) -> Result<(String, &str), String> {
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => return Ok((word, &text[at..])),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                if let Some((_, next)) = chars.next() {
                    // Within quotes a backslash is only for what would end them.
                    if quote.is_some() && !matches!(next, '"' | '\\') {
                        word.push('\\');
                    }
                    word.push(next);
                }
            }
            (_, c) => word.push(c),
        }
    }
    match quote {
        Some(quote) => Err(format!("a {quote} is not closed")),
        None => Ok((word, "")),
    }
}

/// `+5s` at the end is short for `--in 5s`.
pub(super) fn with_delay(mut words: Vec<String>) -> Vec<String> {
    // A command may be cut short.
    let others = match words.first() {
        Some(first) if "send".starts_with(first.as_str()) => 2,
        Some(first) if "reschedule".starts_with(first.as_str()) => 1,
        _ => return words,
    };
    let is_value = |before: &String| before.starts_with('-');
    let is_value = words.iter().rev().nth(1).is_some_and(is_value);
    let delay = words.last().and_then(|last| last.strip_prefix('+'));
    // After -- every word is what it is.
    let is_value = is_value || words.iter().any(|word| word == "--");
    let Some(delay) = delay.filter(|_| words.len() > others && !is_value) else {
        return words;
    };
    let delay = delay.to_owned();
    words.pop();
    words.extend(["--in".to_owned(), delay]);
    words
}
