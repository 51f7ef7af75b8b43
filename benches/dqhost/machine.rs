//! What it was measured on.

use std::process::Command;

use serde_json::{Value, json};

/// The machine and the versions.
#[derive(Debug)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    redis: String,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let redis = Command::new("redis-server").arg("--version").output();
        let redis = redis.map_or_else(|_| Vec::new(), |output| output.stdout);
        Self {
            cpu: model.map_or("unknown", |(_, model)| model).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            redis: String::from_utf8_lossy(&redis).trim().to_owned(),
        }
    }

    /// For people: without the marks of the server's build.
    pub(crate) fn line(&self) -> String {
        let version = self
            .redis
            .split(' ')
            .find_map(|word| word.strip_prefix("v="));
        format!(
            "{}, {} cores, Linux {}, Redis {}, dqhost {}",
            self.cpu,
            self.cores,
            self.kernel,
            version.unwrap_or("unknown"),
            env!("CARGO_PKG_VERSION"),
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cores": self.cores,
            "kernel": self.kernel,
            "redis": self.redis,
            "dqhost": env!("CARGO_PKG_VERSION"),
        })
    }
}
