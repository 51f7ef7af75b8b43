//! How much memory there is, for what handlers may have of it.

use std::fs;

const MIB: u64 = 1024 * 1024;

/// What is taken for it where the system does not tell.
const UNKNOWN: u64 = 4096 * MIB;

/// Handlers may have a quarter of the machine's memory, bytes.
pub(super) fn quarter() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| of_machine(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let group = group.and_then(|text| of_group(&text, |path| fs::read_to_string(path).ok()));
    let memory = match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (one, other) => one.or(other).unwrap_or(UNKNOWN),
    };
    memory / 4
}

fn of_machine(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least that this process's group (version 2) or one above it allows. In a container, the files of its own
/// group are at the top.
fn of_group(text: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let own = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut path = own.trim_end_matches('/');
    let mut least: Option<u64> = None;
    loop {
        let limit = read(&format!("/sys/fs/cgroup{path}/memory.max"));
        let limit = limit.and_then(|text| text.trim().parse().ok());
        least = least.into_iter().chain(limit).min();
        let Some((above, _)) = path.rsplit_once('/') else {
            return least;
        };
        path = above;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_that_of_the_machine_or_less_if_a_group_has_less() {
        assert_eq!(
            of_machine("MemTotal:        8 kB\nMemFree: 1 kB\n"),
            Some(8192)
        );
        for bad in [
            "",
            "MemTotal:",
            "MemTotal: x kB",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(of_machine(bad), None);
        }
        let files = |path: &str| {
            let text = match path {
                "/sys/fs/cgroup/a/b/memory.max" => "max\n",
                "/sys/fs/cgroup/a/memory.max" => "500\n",
                "/sys/fs/cgroup/memory.max" => "700\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(of_group("1:x:/y\n0::/a/b\n", files), Some(500));
        assert_eq!(of_group("0::/other\n", files), Some(700));
        assert_eq!(of_group("0::/\n", files), Some(700));
        assert_eq!(of_group("0::/\n", |_| None), None);
        assert_eq!(of_group("3:memory:/a\n", files), None);
    }
}
