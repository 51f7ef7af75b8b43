//! A text as it is, and as it reads once escapes are undone: those of `{:?}`, JSON and the like, and those
//! of URLs, two deep. Each byte knows where it comes from.

/// How often escapes are undone: JSON within `{:?}`, a URL within JSON. With two it is 17 views at most.
const DEPTH_MAX: usize = 2;

/// A text, and where in the original each of its bytes begins.
pub(super) struct View {
    pub bytes: Vec<u8>,
    /// One more than there are bytes; none if it is the original.
    starts: Option<Vec<u32>>,
    depth: usize,
    /// True if a `+` is one: those of forms are spaces already, or percent signs are undone.
    plus_is_plus: bool,
}

/// What stands at one place of a text.
enum Token {
    /// A byte that stands for itself.
    Plain,
    /// An escape: the bytes that it means, how many those are, and its length.
    Escape([u8; 4], usize, usize),
    /// An escape that has no end here.
    Unfinished,
}

impl Token {
    fn byte(byte: u8, length: usize) -> Self {
        Self::Escape([byte, 0, 0, 0], 1, length)
    }

    fn character(code: u32, length: usize) -> Self {
        let Some(c) = char::from_u32(code) else {
            return Self::Plain;
        };
        let mut bytes = [0; 4];
        let count = c.encode_utf8(&mut bytes).len();
        Self::Escape(bytes, count, length)
    }
}

impl View {
    /// Where a byte of it begins in the original; one behind the last is the end.
    pub(super) fn origin(&self, at: usize) -> usize {
        self.starts
            .as_ref()
            .map_or(at, |starts| starts[at] as usize)
    }

    /// The views of a text. `is_cut` is true if the text ends where it was cut. With `has_space` a `+`
    /// may be a space, as in forms.
    pub(super) fn all(text: &str, is_cut: bool, has_space: bool) -> Vec<Self> {
        let mut views = vec![Self {
            bytes: text.as_bytes().to_vec(),
            starts: None,
            depth: 0,
            plus_is_plus: !has_space,
        }];
        let mut at = 0;
        while let Some(view) = views.get(at) {
            at += 1;
            if view.depth == DEPTH_MAX {
                continue;
            }
            let unescaped = view.decoded(is_cut, b'\\', backslash);
            let mut unquoted = view.decoded(is_cut, b'%', percent);
            if let Some(view) = &mut unquoted {
                view.plus_is_plus = true;
            }
            let spaced = view.with_spaces();
            views.extend([unescaped, unquoted, spaced].into_iter().flatten());
        }
        views
    }

    /// The same with the escapes undone that begin with this byte, if there are any.
    fn decoded(&self, is_cut: bool, sign: u8, token: fn(&[u8]) -> Token) -> Option<Self> {
        let first = self.bytes.iter().position(|byte| *byte == sign)?;
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut starts = Vec::with_capacity(self.bytes.len() + 1);
        bytes.extend_from_slice(&self.bytes[..first]);
        starts.extend((0..first).map(|at| self.start(at)));
        let (mut at, mut is_changed) = (first, false);
        while at < self.bytes.len() {
            let rest = &self.bytes[at..];
            let found = if rest[0] == sign {
                token(rest)
            } else {
                Token::Plain
            };
            match found {
                Token::Escape(meant, count, length) => {
                    bytes.extend_from_slice(&meant[..count]);
                    starts.extend(std::iter::repeat_n(self.start(at), count));
                    at += length;
                    is_changed = true;
                }
                // What it would have become is not known: the text ends before it.
                Token::Unfinished if is_cut => {
                    is_changed = true;
                    break;
                }
                Token::Plain | Token::Unfinished => {
                    bytes.push(rest[0]);
                    starts.push(self.start(at));
                    at += 1;
                }
            }
        }
        starts.push(self.start(at));
        is_changed.then_some(Self {
            bytes,
            starts: Some(starts),
            depth: self.depth + 1,
            plus_is_plus: self.plus_is_plus,
        })
    }

    fn start(&self, at: usize) -> u32 {
        u32::try_from(self.origin(at)).unwrap_or(u32::MAX)
    }

    /// The same with a space for each `+`, if there is one that may be a space.
    fn with_spaces(&self) -> Option<Self> {
        let space = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
        (!self.plus_is_plus && self.bytes.contains(&b'+')).then(|| Self {
            bytes: self.bytes.iter().map(space).collect(),
            starts: self.starts.clone(),
            depth: self.depth,
            plus_is_plus: true,
        })
    }
}

/// A number of so many hexadecimal digits at most, and how many there are.
fn hexadecimal(digits: &[u8], max: usize) -> (u32, usize) {
    let digits = digits.iter().take(max);
    let values = digits.map_while(|digit| char::from(*digit).to_digit(16));
    values.fold((0, 0), |(number, count), digit| {
        (number << 4 | digit, count + 1)
    })
}

fn percent(rest: &[u8]) -> Token {
    let (number, count) = hexadecimal(&rest[1..], 2);
    match (u8::try_from(number), count) {
        (Ok(byte), 2) => Token::byte(byte, 3),
        _ if 1 + count == rest.len() => Token::Unfinished,
        _ => Token::Plain,
    }
}

fn backslash(rest: &[u8]) -> Token {
    let Some(kind) = rest.get(1) else {
        return Token::Unfinished;
    };
    let simple = match kind {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'0' => 0,
        b'a' => 7,
        b'b' => 8,
        b'v' => 11,
        b'f' => 12,
        b'e' => 27,
        b'"' | b'\'' | b'\\' | b'/' => *kind,
        b'x' => {
            let (number, count) = hexadecimal(&rest[2..], 2);
            return match (u8::try_from(number), count) {
                (Ok(byte), 2) => Token::byte(byte, 4),
                _ if 2 + count == rest.len() => Token::Unfinished,
                _ => Token::Plain,
            };
        }
        b'u' if rest.get(2) == Some(&b'{') => {
            let (number, count) = hexadecimal(&rest[3..], 6);
            return match rest.get(3 + count) {
                Some(b'}') => Token::character(number, 4 + count),
                None => Token::Unfinished,
                Some(_) => Token::Plain,
            };
        }
        b'u' => return utf16(rest),
        _ => return Token::Plain,
    };
    Token::byte(simple, 2)
}

/// A character of JSON by its code, or by two that belong together.
fn utf16(rest: &[u8]) -> Token {
    let (first, count) = hexadecimal(&rest[2..], 4);
    if count < 4 {
        let is_end = 2 + count == rest.len();
        return if is_end {
            Token::Unfinished
        } else {
            Token::Plain
        };
    }
    if !(0xd800..0xdc00).contains(&first) {
        return Token::character(first, 6);
    }
    let low = &rest[6..];
    let (second, count) = hexadecimal(low.get(2..).unwrap_or_default(), 4);
    if low.len() < 6 && b"\\u".starts_with(&low[..low.len().min(2)]) && count + 2 >= low.len() {
        return Token::Unfinished;
    }
    if !low.starts_with(b"\\u") || count < 4 || !(0xdc00..0xe000).contains(&second) {
        return Token::Plain;
    }
    Token::character(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
}
