//! The files of `docs/examples`: well formed, and what they give dqhost is what it takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{RedisServer, dqhost, expect, run, stdout};

/// Seconds that handlers may take when a host stops.
const DRAIN: i64 = 25;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

fn documents(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn text(yaml: &Yaml) -> String {
    yaml.as_str()
        .unwrap_or_else(|| panic!("{yaml:?}"))
        .to_owned()
}

fn texts(yaml: &Yaml) -> Vec<String> {
    yaml.as_vec().unwrap().iter().map(text).collect()
}

/// What a host is started with: its arguments and its environment.
struct Start {
    args: Vec<String>,
    variables: BTreeMap<String, String>,
}

impl Start {
    fn of_compose(file: &Yaml) -> Self {
        let service = &file["services"]["dqhost"];
        let variables = service["environment"].as_hash().unwrap().iter();
        Self {
            args: texts(&service["command"]),
            variables: variables
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
        }
    }

    /// Those that come from a secret get the value that the file tells of.
    fn of_kubernetes(file: &Yaml) -> Self {
        let container = &file["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_vec().unwrap().iter();
        let value = |one: &Yaml| one["value"].as_str().unwrap_or("redis://redis").to_owned();
        Self {
            args: texts(&container["args"]),
            variables: variables
                .map(|one| (text(&one["name"]), value(one)))
                .collect(),
        }
    }

    /// The program takes all of it, and has no variable that it does not know.
    fn is_right(&self) {
        let reference = include_str!("../../docs/cli.md");
        assert_eq!(self.args[0], "up");
        let mut command = dqhost(None, &["config", "show"]);
        command.args(&self.args[1..]).envs(&self.variables);
        expect(command.output().unwrap(), 0);
        for name in self.variables.keys() {
            let is_known = reference.contains(&format!("[env: {name}]"));
            assert!(is_known || name == "DQHOST_REDIS", "{name}");
        }
        assert!(self.variables.len() > 3);
    }
}

#[test]
fn the_compose_file_starts_a_host_with_flags_that_there_are() {
    let files = documents("compose.yaml");
    assert_eq!(files.len(), 1);
    Start::of_compose(&files[0]).is_right();
    let service = &files[0]["services"]["dqhost"];
    let grace = text(&service["stop_grace_period"]);
    let grace: i64 = grace.strip_suffix('s').unwrap().parse().unwrap();
    assert!(grace > DRAIN);
    let build = &service["build"];
    let context = folder().join(text(&build["context"]));
    assert!(context.join(text(&build["dockerfile"])).exists());
    assert!(context.join("Cargo.toml").exists());
}

#[test]
fn the_kubernetes_manifests_start_a_host_with_flags_that_there_are() {
    let files = documents("kubernetes.yaml");
    let kinds: Vec<String> = files.iter().map(|file| text(&file["kind"])).collect();
    assert_eq!(kinds, ["Deployment", "Service"]);
    Start::of_kubernetes(&files[0]).is_right();
    let pod = &files[0]["spec"]["template"]["spec"];
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > DRAIN);
    let container = &pod["containers"][0];
    let pages = include_str!("../../docs/metrics.md");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert!(pages.contains(&format!("`GET {}`", text(&get["path"]))));
        assert_eq!(get["port"], container["ports"][0]["name"], "{probe}");
    }
    let labels = &files[0]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&files[1]["spec"]["selector"], labels);
    assert_eq!(&files[0]["spec"]["selector"]["matchLabels"], labels);
}

#[test]
fn the_scaler_counts_what_waits_for_a_slot_and_never_goes_to_no_host() {
    let files = documents("keda.yaml");
    let spec = &files[0]["spec"];
    let deployment = &documents("kubernetes.yaml")[0];
    assert_eq!(
        spec["scaleTargetRef"]["name"],
        deployment["metadata"]["name"]
    );
    assert_eq!(spec["minReplicaCount"].as_i64(), Some(1));
    let list = text(&spec["triggers"][0]["metadata"]["listName"]);
    let server = RedisServer::start();
    for payload in ["a", "b"] {
        run(
            Some(&server.url()),
            &["send", "--queue", "orders", payload],
            0,
        );
    }
    let length: i64 = server.command(&["LLEN", &list]);
    assert_eq!(length, 2, "{list}");
}

#[test]
fn the_image_is_built_by_the_pinned_compiler_and_starts_dqhost() {
    let file = read("Dockerfile");
    let toolchain = include_str!("../../rust-toolchain.toml");
    let line = |start: &str| file.lines().find_map(|line| line.strip_prefix(start));
    let image = line("FROM docker.io/library/rust:").unwrap();
    let version = image.split('-').next().unwrap();
    assert!(
        toolchain.contains(&format!("channel = \"{version}.")),
        "{image}"
    );
    let json = |start: &str| -> Vec<String> { serde_json::from_str(line(start).unwrap()).unwrap() };
    let entry = json("ENTRYPOINT ");
    assert!(file.contains(&format!("target/release/dqhost {}", entry[0])));
    let printed = stdout(&run(None, &json("CMD "), 0));
    assert!(printed.contains("Usage:"), "{printed}");
}
