//! Components that are made to exhaust a compiler, from a seed: always the same.

use std::fmt::Write as _;

use fastrand::Rng;

type Kind = (&'static str, fn(&mut Rng) -> Vec<u8>);

const KINDS: [Kind; 7] = [
    ("nesting", nesting),
    ("elements", elements),
    ("types", types),
    ("functions", functions),
    ("data", data),
    ("locals", locals),
    ("names", names),
];

/// Bytes of the largest.
const LARGE: usize = 8 << 20;

/// The bomb with this number, and what it is made of. No two have the same bytes.
pub(super) fn bomb(number: usize) -> (&'static str, Vec<u8>) {
    let (name, make) = KINDS[number % KINDS.len()];
    let bomb = make(&mut Rng::with_seed(number as u64));
    let mark = section(0, &with_length(&number.to_le_bytes()));
    (name, [bomb, mark].concat())
}

fn number(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(n & 0x7f).unwrap();
        n >>= 7;
        if n == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&number(bytes.len())[..], bytes].concat()
}

fn section(id: u8, body: &[u8]) -> Vec<u8> {
    [&[id][..], &with_length(body)].concat()
}

/// A section of so many equal items.
fn items(id: u8, count: usize, item: &[u8]) -> Vec<u8> {
    section(id, &[number(count), item.repeat(count)].concat())
}

/// A component of one core module with these sections, which is instantiated once.
fn component(sections: &[Vec<u8>]) -> Vec<u8> {
    let module = [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat();
    let instance = [1, 0, 0, 0];
    [
        b"\0asm\x0d\0\x01\0".to_vec(),
        section(1, &module),
        section(2, &instance),
    ]
    .concat()
}

/// A number up to the greatest, of any magnitude.
fn up_to(rng: &mut Rng, most: usize) -> usize {
    (most >> rng.u32(0..6)).max(1)
}

/// Instances of instances: from 2^10 to 2^40 of the innermost.
fn nesting(rng: &mut Rng) -> Vec<u8> {
    let (width, depth) = [
        (2, 40),
        (2, 10),
        (2, 18),
        (2, 24),
        (4, 20),
        (16, 10),
        (1000, 4),
    ][rng.usize(0..7)];
    let inner = ["", "(table 1 funcref)", "(memory 1)", "(func)"][rng.usize(0..4)];
    nested(width, depth, inner)
}

pub(super) fn nested(width: usize, depth: usize, inner: &str) -> Vec<u8> {
    let mut text = format!(
        "(component (component $c0 (core module $m {inner}) (core instance (instantiate $m)))"
    );
    for level in 1..=depth {
        let inner = format!("(instance (instantiate $c{}))", level - 1).repeat(width);
        let _ = write!(text, "(component $c{level} {inner})");
    }
    let _ = write!(text, "(instance (instantiate $c{depth})))");
    wat::parse_str(text).unwrap()
}

const TYPE: [u8; 3] = [0x60, 0, 0];

/// A table, a function and these segments of elements.
fn table(segments: &[u8]) -> Vec<u8> {
    component(&[
        items(1, 1, &TYPE),
        items(3, 1, &[0]),
        items(4, 1, &[0x70, 0, 1]),
        section(9, segments),
        items(10, 1, &[2, 0, 0x0b]),
    ])
}

/// One segment of expressions, which are passive or declared.
fn expressions(flags: u8, bytes: usize) -> Vec<u8> {
    let expressions = [0xd2, 0, 0x0b].repeat(bytes / 3);
    table(&[vec![1, flags, 0x70], number(bytes / 3), expressions].concat())
}

/// Up to 8 MB of elements: of one segment or of many, as numbers or as expressions.
fn elements(rng: &mut Rng) -> Vec<u8> {
    let bytes = up_to(rng, LARGE);
    match rng.u32(0..5) {
        // One passive segment of function 0.
        0 => table(&[vec![1, 1, 0], number(bytes), vec![0; bytes]].concat()),
        1 => expressions(5, bytes),
        2 => expressions(7, bytes),
        // Many passive segments of one function.
        3 => table(&many(bytes, &[1, 0, 1, 0])),
        // Many active segments without any.
        _ => table(&many(bytes, &[0, 0x41, 0, 0x0b, 0])),
    }
}

/// As many as there may be of a segment, within so many bytes.
fn many(bytes: usize, segment: &[u8]) -> Vec<u8> {
    let count = (bytes / segment.len()).min(100_000);
    [number(count), segment.repeat(count)].concat()
}

/// What takes the most memory of all.
pub(super) fn heaviest() -> [Vec<u8>; 4] {
    [
        nested(2, 40, ""),
        expressions(5, LARGE),
        table(&many(LARGE, &[1, 0, 1, 0])),
        empty_functions(1_000_000),
    ]
}

pub(super) fn empty_functions(count: usize) -> Vec<u8> {
    component(&[
        items(1, 1, &TYPE),
        items(3, count, &[0]),
        items(10, count, &[2, 0, 0x0b]),
    ])
}

/// Types of functions with many parameters, or types of components that double.
fn types(rng: &mut Rng) -> Vec<u8> {
    match rng.u32(0..3) {
        0 => component(&[items(1, up_to(rng, 1_000_000), &TYPE)]),
        1 => {
            let parameters = up_to(rng, 1000);
            let count = (LARGE / parameters).min(1_000_000);
            let of_function = [
                vec![0x60],
                number(parameters),
                vec![0x7e; parameters],
                vec![0],
            ];
            component(&[items(1, count, &of_function.concat())])
        }
        _ => {
            let mut text = "(component (type $t0 (tuple u8 u8))".to_owned();
            for level in 1..=up_to(rng, 60) {
                let _ = write!(text, "(type $t{level} (tuple $t{0} $t{0}))", level - 1);
            }
            text += ")";
            wat::parse_str(text).unwrap()
        }
    }
}

/// Up to a million functions, which are exported or not.
fn functions(rng: &mut Rng) -> Vec<u8> {
    let count = up_to(rng, 1_000_000);
    let body = [vec![2, 0, 0x0b], vec![4, 0, 0x41, 0, 0x1a, 0x0b]];
    // The second is not whole: its length is wrong.
    let body = if rng.u32(0..5) == 0 {
        &body[1]
    } else {
        &body[0]
    };
    let mut sections = vec![items(1, 1, &TYPE), items(3, count, &[0])];
    if rng.bool() {
        let exports: Vec<u8> = (0..count.min(100_000))
            .flat_map(|n| [with_length(n.to_string().as_bytes()), vec![0], number(n)].concat())
            .collect();
        sections.push(section(7, &[number(count.min(100_000)), exports].concat()));
    }
    sections.push(items(10, count, body));
    component(&sections)
}

/// Up to 8 MB of data: of one segment, or of many that are far apart.
fn data(rng: &mut Rng) -> Vec<u8> {
    let bytes = up_to(rng, LARGE);
    let segments = match rng.u32(0..3) {
        0 => [vec![1, 0, 0x41, 0, 0x0b], with_length(&vec![7; bytes])].concat(),
        1 => {
            let count = (bytes / 6).min(100_000);
            [number(count), [0, 0x41, 0, 0x0b, 1, 7].repeat(count)].concat()
        }
        _ => {
            let count = rng.usize(2..1000);
            let far: Vec<u8> = (0..count)
                .flat_map(|n| {
                    // Signed, so that a byte more keeps the sign out.
                    let mut leb = number(n * (60 << 20) / count);
                    if leb.last().is_some_and(|last| last & 0x40 != 0) {
                        *leb.last_mut().unwrap() |= 0x80;
                        leb.push(0);
                    }
                    [vec![0, 0x41], leb, vec![0x0b, 1, 7]].concat()
                })
                .collect();
            [number(count), far].concat()
        }
    };
    let pages = number(1000);
    component(&[
        section(5, &[vec![1, 0], pages].concat()),
        section(11, &segments),
    ])
}

/// Functions of up to 50,000 locals each, all used, or of deep blocks.
fn locals(rng: &mut Rng) -> Vec<u8> {
    let count = up_to(rng, 50_000);
    let body = match rng.u32(0..3) {
        0 => [vec![1], number(count), vec![0x7e, 0x0b]].concat(),
        1 => {
            let uses: Vec<u8> = (0..count)
                .flat_map(|n| {
                    let (n, m) = (number(n), number(count - 1 - n));
                    [vec![0x20], n, vec![0x21], m].concat()
                })
                .collect();
            [vec![1], number(count), vec![0x7e], uses, vec![0x0b]].concat()
        }
        _ => {
            let deep = [[0x02, 0x40].repeat(count), vec![0x0b; count]].concat();
            [vec![0], deep, vec![0x0b]].concat()
        }
    };
    let body = with_length(&body);
    let functions = (LARGE / 2 / body.len()).clamp(1, 2000);
    component(&[
        items(1, 1, &TYPE),
        items(3, functions, &[0]),
        items(10, functions, &body),
    ])
}

/// Long names: of exports, of imports, or of nothing that is there.
fn names(rng: &mut Rng) -> Vec<u8> {
    let long = up_to(rng, 100_000);
    let count = (up_to(rng, LARGE) / long).max(1);
    let end = "0".repeat(long);
    let name = |n: usize| with_length(format!("{n}{end}").as_bytes());
    match rng.u32(0..3) {
        0 => {
            let imports: Vec<u8> = (0..count)
                .flat_map(|n| [name(n), name(n), vec![0, 0]].concat())
                .collect();
            component(&[
                items(1, 1, &TYPE),
                section(2, &[number(count), imports].concat()),
            ])
        }
        1 => {
            let subsections: Vec<u8> = (0..count)
                .flat_map(|n| [number(n), name(n)].concat())
                .collect();
            let functions = section(1, &[number(count), subsections].concat());
            component(&[section(0, &[with_length(b"name"), functions].concat())])
        }
        _ => {
            let mut text = "(component".to_owned();
            for n in 0..count.min(200) {
                let _ = write!(text, "(import \"a{n}{end}\" (func))");
            }
            text += ")";
            wat::parse_str(text).unwrap()
        }
    }
}
