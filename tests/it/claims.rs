//! Each claim of SECURITY.md names its tests, and they are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// `module::name` of all tests below a folder, with the file's name for the module.
fn collect(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, tests);
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let module = path.file_stem().unwrap().to_str().unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            // Those of proptest have their attribute in front as well.
            if let Some(name) = line.trim_start_matches("async ").strip_prefix("fn ")
                && std::mem::take(&mut is_test)
            {
                let name = name.split('(').next().unwrap();
                tests.insert(format!("{module}::{name}"));
            }
        }
    }
}

#[test]
fn every_claim_of_the_threat_model_names_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    for folder in ["src", "tests/it"] {
        collect(&root.join(folder), &mut tests);
    }
    let text = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut claims = 0;
    for row in rows {
        let column = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let named: Vec<&str> = column.split(", ").collect();
        for name in named {
            let name = name.trim_matches('`');
            assert!(tests.contains(name), "there is no test {name}: {row}");
        }
        claims += 1;
    }
    assert!(claims > 10);
}
