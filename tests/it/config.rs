//! `dqhost.toml`: which value counts, what is said of wrong ones, and queues that differ.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, expect, guest, stderr, stdout};

/// A folder for a file of settings, and the home of a user.
struct Place(TempDir);

impl Place {
    fn with(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("dqhost.toml"), text).unwrap();
        Self(folder)
    }

    /// The program in this folder.
    fn dqhost(&self, args: &[&str]) -> Command {
        let mut command = dqhost(None, args);
        command
            .current_dir(self.0.path())
            .env("XDG_CONFIG_HOME", self.0.path().join("config"))
            .env("XDG_DATA_HOME", self.0.path().join("data"));
        command
    }

    fn run(&self, args: &[&str], code: i32) -> Output {
        expect(self.dqhost(args).output().unwrap(), code)
    }

    /// What a host serves until its queues are empty, as the lines of its log.
    fn serve(&self) -> Vec<Value> {
        let args = ["up", "--exit-when-empty", "--log-format", "json"];
        let log = stderr(&self.run(&args, 0));
        log.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// The line of a key in what `config show --origin` prints, as value and origin. The part of a queue
/// begins with its heading.
fn shown(text: &str, heading: &str, key: &str) -> Option<(String, String)> {
    let part = match heading {
        "" => text,
        heading => text.split_once(&format!("[queue.{heading}]")).unwrap().1,
    };
    let part = part.split("\n[").next().unwrap();
    let line = part
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{key} = ")))?;
    let (value, origin) = line.rsplit_once("  # ").unwrap();
    Some((value.trim().to_owned(), origin.to_owned()))
}

/// The value and the text of one origin.
type Given = [&'static str; 2];

/// Each: key, default, then the values and texts of file, environment and flag.
const ROWS: [(&str, &str, Given, Given, Given); 11] = [
    ("slots", "\"auto\"", ["7", "7"], ["8", "8"], ["9", "9"]),
    (
        "memory-total",
        "",
        ["700", "700"],
        ["800", "800"],
        ["900", "900"],
    ),
    (
        "lease",
        "\"15s\"",
        ["\"7s\"", "\"7s\""],
        ["8s", "\"8s\""],
        ["9s", "\"9s\""],
    ),
    (
        "log-format",
        "\"text\"",
        ["\"json\"", "\"json\""],
        ["text", "\"text\""],
        ["json", "\"json\""],
    ),
    (
        "strict",
        "false",
        ["true", "true"],
        ["false", "false"],
        ["", "true"],
    ),
    (
        "dead-max-age",
        "",
        ["\"7d\"", "\"7d\""],
        ["8d", "\"8d\""],
        ["9d", "\"9d\""],
    ),
    (
        "allow-http",
        "",
        ["[\"a.b\", \"c.d\"]", "[\"a.b\", \"c.d\"]"],
        ["e.f,g.h", "[\"e.f\", \"g.h\"]"],
        ["i.j", "[\"i.j\"]"],
    ),
    (
        "limit",
        "",
        ["{ sends = 7 }", "{ sends = \"7\" }"],
        ["sends=8", "{ sends = \"8\" }"],
        ["sends=9", "{ sends = \"9\" }"],
    ),
    (
        "fair-weight",
        "",
        ["{ big = 3, x = 2 }", "{ big = \"3\", x = \"2\" }"],
        ["big=4", "{ big = \"4\" }"],
        ["big=5", "{ big = \"5\" }"],
    ),
    (
        "secret-file",
        "",
        ["{ A = \"/a,b\" }", "{ A = \"/a,b\" }"],
        ["A=/c", "{ A = \"/c\" }"],
        ["A=/d", "{ A = \"/d\" }"],
    ),
    (
        "prefix",
        "\"dp\"",
        ["\"f\"", "\"f\""],
        ["e", "\"e\""],
        ["c", "\"c\""],
    ),
];

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    for (key, default, of_file, of_environment, of_flag) in ROWS {
        let place = Place::with(&format!("{key} = {}\n", of_file[0]));
        let empty = Place(TempDir::new().unwrap());
        let variable = format!("DQHOST_{}", key.to_uppercase().replace('-', "_"));
        let flag = format!("--{key}");
        let flags: Vec<&str> = [flag.as_str(), of_flag[0]]
            .into_iter()
            .filter(|one| !one.is_empty())
            .collect();
        let show = |place: &Place, is_in_environment: bool, flags: &[&str]| {
            let mut command = place.dqhost(&[&["config", "show", "--origin"], flags].concat());
            if is_in_environment {
                command.env(&variable, of_environment[0]);
            }
            shown(&stdout(&expect(command.output().unwrap(), 0)), "", key)
        };
        let both = |value: &str, origin: &str| Some((value.to_owned(), origin.to_owned()));
        let by_default = if default.is_empty() {
            None
        } else {
            both(default, "default")
        };
        assert_eq!(show(&empty, false, &[]), by_default, "{key}");
        assert_eq!(
            show(&place, false, &[]),
            both(of_file[1], "dqhost.toml:1"),
            "{key}"
        );
        assert_eq!(
            show(&place, true, &[]),
            both(of_environment[1], &variable),
            "{key}"
        );
        assert_eq!(
            show(&empty, true, &[]),
            both(of_environment[1], &variable),
            "{key}"
        );
        for is_in_environment in [false, true] {
            let shown = show(&place, is_in_environment, &flags);
            assert_eq!(shown, both(of_flag[1], &flag), "{key}");
        }
    }
}

#[test]
fn a_table_of_a_queue_comes_before_the_top_of_the_file() {
    let place = Place::with(
        "lease = \"20s\"\nallow-http = [\"a.b\"]\nslots = 4\n\n\
         [queue.one]\nlease = \"30s\"\nallow-http = []\nslots = 2\nweight = 3\n\n[queue.two]\n",
    );
    let text = stdout(&place.run(&["config", "show", "--origin"], 0));
    for (heading, key, value) in [
        ("", "lease", Some(("\"20s\"", "dqhost.toml:1"))),
        ("", "slots", Some(("4", "dqhost.toml:3"))),
        ("", "weight", None),
        ("one", "lease", Some(("\"30s\"", "dqhost.toml:6"))),
        ("one", "allow-http", Some(("[]", "dqhost.toml:7"))),
        ("one", "slots", Some(("2", "dqhost.toml:8"))),
        ("one", "weight", Some(("3", "dqhost.toml:9"))),
        ("one", "timeout", Some(("\"30s\"", "default"))),
        ("two", "lease", Some(("\"20s\"", "dqhost.toml:1"))),
        ("two", "allow-http", Some(("[\"a.b\"]", "dqhost.toml:2"))),
        ("two", "slots", None),
        ("two", "weight", Some(("1", "default"))),
    ] {
        let value = value.map(|(value, origin)| (value.to_owned(), origin.to_owned()));
        assert_eq!(shown(&text, heading, key), value, "{heading} {key}\n{text}");
    }
    // A flag is for all queues, but for the slots, which are those of the host.
    let text = stdout(&place.run(
        &[
            "config", "show", "--origin", "--lease", "9s", "--slots", "5",
        ],
        0,
    ));
    for heading in ["", "one", "two"] {
        let expected = Some(("\"9s\"".to_owned(), "--lease".to_owned()));
        assert_eq!(shown(&text, heading, "lease"), expected, "{text}");
    }
    assert_eq!(shown(&text, "", "slots").unwrap().1, "--slots");
    assert_eq!(shown(&text, "one", "slots").unwrap().0, "2");
    // What is shown is a file that sets the same.
    let again = Place::with(&stdout(&place.run(&["config", "show"], 0)));
    let (one, other) = (
        place.run(&["config", "show"], 0),
        again.run(&["config", "show"], 0),
    );
    assert_eq!(stdout(&one), stdout(&other));
    // A flag chooses among the queues.
    let text = stdout(&place.run(&["config", "show", "--queue", "one"], 0));
    assert!(
        text.contains("[queue.one]") && !text.contains("[queue.two]"),
        "{text}"
    );
}

/// Files with something wrong in them.
const MISTAKES: &[&str] = &[
    "slotz = 4",
    "lease = ",
    "lease = \"5\"",
    "lease = 15",
    "slots = 0",
    "slots = \"4\"",
    "slots = 1.5",
    "strict = \"yes\"",
    "allow-http = \"api.example.com\"",
    "allow-http = [\"ok.example\", 7]",
    "allow-http = [\"ftp://a.b\"]",
    "limit = { senda = 5 }",
    "limit = { sends = 99999 }",
    "limit = [\"sends=5\"]",
    "env = { \"A=B\" = \"c\" }",
    "env = { A = [\"hunter2\"] }",
    "handler = \"\"",
    "durability = \"some\"",
    "handler-digest = [\"sha256:12\"]",
    "db = \"a.db\"\nredis = \"redis://:hunter2@localhost\"",
    "redis = [\"redis://:hunter2@localhost\"]",
    "redis-cert = \"c.pem\"",
    "weight = 2",
    "queue = \"emails\"",
    "queue = [\"emails\"]",
    "snapshot = true",
    "config = \"other.toml\"",
    "lease = \"5s\"\nlease = \"6s\"",
    "[queue.\"a b\"]",
    "[queue]\nemails = 1",
    "[queue.emails]\ntimeot = \"5s\"\ndrain = \"5s\"\nweight = 0",
    "[queue.emails]\nlimit = { stack = \"1MiB\", sends = 5 }",
    "[queue.emails]\ntimeout = \"0s\"\n\n[queue.orders]\nslots = 5000",
    "[host]\nslots = 5",
    "\"\\u001b[31m\" = 1",
    "dashboard = 1",
    "[dashboard]\nkey = 1",
    "[dashboard]\nkeys = \"R\"",
    "[dashboard.keys]\nredriv = \"R\"\nretry = \"R\"\n\"\\u001b\" = \"R\"",
    "[dashboard.keys]\nredrive = \"ctl-r\"",
    "[dashboard.keys]\nredrive = \"alt-r\"\nsend = \"\"\ntry = \"\\u001b\"",
    "[dashboard.keys]\nredrive = 5\ntry = [\"b\", 5]",
    "[dashboard.keys]\nredrive = []",
    "[dashboard.keys]\nredrive = \"j\"",
    "[dashboard.keys]\nup = \"i\"\ndown = [\"down\", \"i\"]",
    "[dashboard.keys]\nprompt-leave = \"x\"\nyes = \"7\"",
];

#[test]
fn each_mistake_is_told_with_its_place_and_what_is_wanted() {
    let mut told = String::new();
    for mistake in MISTAKES {
        let place = Place::with(mistake);
        let refusal = stderr(&place.run(&["config", "check"], 2));
        assert!(
            !refusal.contains("hunter2") && !refusal.contains('\u{1b}'),
            "{refusal}"
        );
        let _ = writeln!(told, "---- {}\n{refusal}", mistake.escape_debug());
        // Every command says the same, and does nothing.
        assert_eq!(stderr(&place.run(&["send", "x"], 2)), refusal);
    }
    insta::assert_snapshot!("config-mistakes", told);
    let place = Place::with("x");
    fs::write(place.0.path().join("dqhost.toml"), b"\xff").unwrap();
    assert!(stderr(&place.run(&["stats"], 2)).contains("it is not text"));
    fs::write(
        place.0.path().join("dqhost.toml"),
        vec![b'\n'; (1 << 20) + 1],
    )
    .unwrap();
    assert!(stderr(&place.run(&["stats"], 2)).contains("more than 1048576 bytes"));
    let missing = stderr(&place.run(&["stats", "--config", "missing.toml"], 2));
    assert!(missing.contains("cannot use missing.toml"), "{missing}");
}

#[test]
fn keys_of_the_dashboard_are_shown_with_their_places() {
    let place = Place::with(
        "slots = 4\n[dashboard.keys]\n# As elsewhere.\nredrive = \"ctrl-r\"\ndown = [\"down\", \"ctrl-n\"]\n",
    );
    place.run(&["config", "check"], 0);
    let text = stdout(&place.run(&["config", "show", "--origin"], 0));
    let part = text.split_once("\n[dashboard.keys]\n").unwrap().1;
    let lines: Vec<&str> = part.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "redrive = \"ctrl-r\"         # dqhost.toml:4",
            "down = [\"down\", \"ctrl-n\"]  # dqhost.toml:5"
        ]
    );
    // What it shows is a file that says the same.
    let shown = stdout(&place.run(&["config", "show"], 0));
    fs::write(place.0.path().join("dqhost.toml"), &shown).unwrap();
    assert_eq!(stdout(&place.run(&["config", "show"], 0)), shown);
    let keys = stdout(&place.run(&["keys"], 0));
    assert!(keys.contains("  ^R                 put it back"), "{keys}");
    // Every action of the schema, with its usual key.
    let schema: Value =
        serde_json::from_str(&stdout(&place.run(&["config", "schema"], 0))).unwrap();
    let actions = &schema["properties"]["dashboard"]["properties"]["keys"]["properties"];
    let mut file = "[dashboard.keys]\n".to_owned();
    for (name, action) in actions.as_object().unwrap() {
        let _ = writeln!(file, "{name} = {}", action["default"]);
    }
    assert!(file.lines().count() > 60);
    fs::write(place.0.path().join("dqhost.toml"), file).unwrap();
    place.run(&["config", "check"], 0);
}

#[test]
fn the_file_is_the_one_that_is_named_or_the_nearest() {
    let place = Place::with("slots = 2");
    let at = |name: &str| place.0.path().join(name).display().to_string();
    fs::create_dir_all(at("config/dqhost")).unwrap();
    fs::write(at("config/dqhost/dqhost.toml"), "slots = 3").unwrap();
    fs::write(at("variable.toml"), "slots = 4").unwrap();
    fs::write(at("flag.toml"), "slots = 5").unwrap();
    let slots = |variable: Option<&str>, flags: &[&str]| {
        let mut command = place.dqhost(&[&["config", "show"], flags].concat());
        command.envs(variable.map(|path| ("DQHOST_CONFIG", path)));
        let text = stdout(&expect(command.output().unwrap(), 0));
        text.lines()
            .find_map(|line| line.strip_prefix("slots = ").map(str::to_owned))
            .unwrap()
    };
    assert_eq!(
        slots(Some("variable.toml"), &["--config", "flag.toml"]),
        "5"
    );
    assert_eq!(slots(Some("variable.toml"), &[]), "4");
    assert_eq!(slots(None, &[]), "2");
    fs::remove_file(at("dqhost.toml")).unwrap();
    assert_eq!(slots(None, &[]), "3");
    fs::remove_file(at("config/dqhost/dqhost.toml")).unwrap();
    assert_eq!(slots(None, &[]), "\"auto\"");
    fs::write(at("flag.toml"), "slots = \"auto\"").unwrap();
    assert_eq!(slots(None, &["--config", "flag.toml"]), "\"auto\"");
    fs::write(at("flag.toml"), "slots = 5").unwrap();
    let refusal = stderr(&place.run(&["config", "check"], 2));
    assert!(refusal.contains("there is no dqhost.toml"), "{refusal}");
    let text = stdout(&place.run(&["config", "check", "--config", "flag.toml"], 0));
    assert_eq!(text, "flag.toml: no mistakes; queues: \n");
}

#[test]
fn a_file_that_others_can_write_to_is_used_only_if_it_is_named() {
    let place = Place::with("slots = 2");
    let file = place.0.path().join("dqhost.toml");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let writable = "any user of this machine can write to it";
    mode(0o666);
    let refusal = stderr(&place.run(&["stats"], 2));
    assert!(
        refusal.contains(writable) && refusal.contains("--config"),
        "{refusal}"
    );
    let named = ["config", "show", "--config", "dqhost.toml"];
    let told = stderr(&place.run(&named, 0));
    assert_eq!(told, format!("warning: dqhost.toml: {writable}\n"));
    mode(0o664);
    let told = stderr(&place.run(&["config", "show"], 0));
    assert_eq!(told, "warning: dqhost.toml: its group can write to it\n");
    mode(0o644);
    assert_eq!(stderr(&place.run(&["config", "show"], 0)), "");
    // Only root can give files away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        let refusal = stderr(&place.run(&["stats"], 2));
        assert!(refusal.contains("it belongs to user 65534"), "{refusal}");
        // A link of another user's is theirs as well.
        let target = place.0.path().join("target.toml");
        fs::write(&target, "slots = 2").unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&target, &file).unwrap();
        assert_eq!(stderr(&place.run(&["config", "show"], 0)), "");
        std::os::unix::fs::lchown(&file, Some(65_534), None).unwrap();
        let refusal = stderr(&place.run(&["stats"], 2));
        assert!(refusal.contains("it belongs to user 65534"), "{refusal}");
    }
    // A password in it is nobody else's to read.
    let place = Place::with("redis = \"redis://:hunter2@localhost\"");
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = place.0.path().join("dqhost.toml");
    for (mode, is_told) in [(0o644, true), (0o600, false)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let output = place.run(&["config", "show"], 0);
        assert_eq!(stderr(&output).contains("can read it"), is_told);
        assert!(stdout(&output).contains("redis = \"redis://***@localhost\""));
    }
}

#[test]
fn every_command_takes_the_store_from_the_file() {
    let server = RedisServer::start();
    let place = Place::with(&format!(
        "redis = \"{}\"\nprefix = \"jobs\"\nretries = 9\n",
        server.url()
    ));
    let ready = |key: &str| server.command::<u64>(&["LLEN", key]);
    let id = stdout(&place.run(&["send", "x"], 0));
    assert_eq!(ready("{jobs:default}:ready"), 1);
    let record = stdout(&place.run(&["get", id.trim(), "--json"], 0));
    let record: Value = serde_json::from_str(&record).unwrap();
    // The retries of the file are those of a host, not of what is sent.
    assert_eq!(record["retries"], 3);
    let stats = stdout(&place.run(&["stats", "--json"], 0));
    assert!(stats.contains("\"ready\":1"), "{stats}");
    // Whoever names another store means none of the file's.
    let db = place.0.path().join("other.db").display().to_string();
    place.run(&["send", "x", "--db", &db, "--prefix", "dp"], 2);
    place.run(&["send", "x", "--db", &db], 0);
    expect(
        place
            .dqhost(&["send", "x"])
            .env("DQHOST_DB", &db)
            .output()
            .unwrap(),
        0,
    );
    let elsewhere = RedisServer::start();
    let mut command = place.dqhost(&["send", "x"]);
    expect(
        command
            .env("DQHOST_REDIS", elsewhere.url())
            .output()
            .unwrap(),
        0,
    );
    assert_eq!(
        elsewhere.command::<u64>(&["LLEN", "{jobs:default}:ready"]),
        1
    );
    assert_eq!(ready("{jobs:default}:ready"), 1);
    // REDIS_URL is of others as well, and comes last.
    let mut command = place.dqhost(&["send", "x"]);
    expect(
        command.env("REDIS_URL", elsewhere.url()).output().unwrap(),
        0,
    );
    assert_eq!(ready("{jobs:default}:ready"), 2);
    // The store of the file is not one that was given to a command without a store.
    let echo = guest("echo").display().to_string();
    place.run(&["run", &echo], 0);
    // A path is relative to the file.
    let folder = place.0.path().join("below");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("dqhost.toml"), "db = \"jobs.db\"\n").unwrap();
    place.run(&["send", "x", "--config", "below/dqhost.toml"], 0);
    assert!(folder.join("jobs.db").exists());
}

/// Two handlers, each with what the other has not.
const TWO_QUEUES: &str = r#"
db = "jobs.db"
env = { BOTH = "top" }

[queue.left]
handler = "env-reader.wasm"
env = { LEFT = "only left" }
retries = 0

[queue.right]
handler = "env-reader.wasm"
secret-file = { RIGHT = "right.txt" }

[queue.open]
handler = "webhook.wasm"
allow-http = ["127.0.0.1:1"]
retries = 0

[queue.shut]
handler = "webhook.wasm"
retries = 0
"#;

#[test]
fn two_queues_of_one_host_differ_in_what_their_handlers_may_do() {
    let place = Place::with(TWO_QUEUES);
    for name in ["env-reader", "webhook"] {
        fs::copy(guest(name), place.0.path().join(format!("{name}.wasm"))).unwrap();
    }
    fs::write(place.0.path().join("right.txt"), "hunter2\n").unwrap();
    let send = |queue: &str, payload: &str, header: &[&str]| {
        let args = [
            &["send", payload, "--queue", queue, "--retries", "0"],
            header,
        ]
        .concat();
        stdout(&place.run(&args, 0)).trim().to_owned()
    };
    let told: Vec<(String, &str)> = ["left", "right"]
        .iter()
        .flat_map(|queue| ["LEFT", "RIGHT", "BOTH"].map(|name| (send(queue, name, &[]), *queue)))
        .collect();
    let header = ["--header", "url=http://127.0.0.1:1/"];
    let calls = [send("open", "", &header), send("shut", "", &header)];
    let lines = place.serve();
    let outcome = |id: &str| {
        let is_end = |line: &&Value| line["id"] == id && line["message"] != "guest";
        let line = lines
            .iter()
            .filter(is_end)
            .find(|line| line["reason"].is_string());
        line.map_or_else(|| "acked".to_owned(), |line| line["reason"].to_string())
    };
    let outcomes: Vec<String> = told.iter().map(|(id, _)| outcome(id)).collect();
    let is_set: Vec<bool> = outcomes.iter().map(|outcome| outcome == "acked").collect();
    // A key of the table stands in place of the one at the top, also if it is a table.
    assert_eq!(
        is_set,
        [true, false, false, false, true, true],
        "{outcomes:?} {lines:#?}"
    );
    let log = serde_json::to_string(&lines).unwrap();
    assert!(
        log.contains("only left") && !log.contains("hunter2"),
        "{log}"
    );
    let refused = |id: &str| {
        let mut of_run = lines.iter().filter(|line| line["id"] == id);
        of_run.any(|line| line.to_string().contains("is not allowed (--allow-http)"))
    };
    assert_eq!(calls.map(|id| refused(&id)), [false, true], "{lines:#?}");
    // The state tells the same as the log.
    for (queue, dead) in [("left", 2), ("right", 1), ("open", 1), ("shut", 1)] {
        let stats = stdout(&place.run(&["stats", "--json", "--queue", queue], 0));
        let stats: Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["queues"][0]["dead"], dead, "{queue}");
    }
}

#[test]
fn a_queue_loads_only_the_file_with_its_digest() {
    let digest = |name: &str| {
        let text = stdout(&expect(
            dqhost(None, &["check", guest(name).to_str().unwrap()])
                .output()
                .unwrap(),
            0,
        ));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("digest "))
            .unwrap();
        line.trim().to_owned()
    };
    let (echo, noop) = (digest("echo"), digest("noop"));
    let file = |of_one: &str, of_two: &str| {
        let (echo, noop) = (guest("echo"), guest("noop"));
        format!(
            "db = \"jobs.db\"\n[queue.one]\nhandler = {echo:?}\nhandler-digest = [\"{of_one}\"]\n\
             [queue.two]\nhandler = {noop:?}\nhandler-digest = [\"{of_two}\"]\n"
        )
    };
    Place::with(&file(&echo, &noop)).serve();
    let place = Place::with(&file(&echo, &echo));
    let refusal = stderr(&place.run(&["up", "--exit-when-empty"], 4));
    assert!(
        refusal.contains("noop.wasm") && refusal.contains(&noop),
        "{refusal}"
    );
}

#[test]
fn a_limit_of_one_queue_does_not_hold_for_another() {
    // The handler takes 32 MiB. The engine has room for the larger of the two limits.
    let place = Place::with(&format!(
        "db = \"jobs.db\"\nmemory = 1\nhandler = {:?}\n[queue.small]\n[queue.large]\nmemory = 256\n",
        guest("hog")
    ));
    for queue in ["small", "large"] {
        place.run(&["send", "16", "--queue", queue, "--retries", "0"], 0);
    }
    let lines = place.serve();
    let said = |queue: &str| {
        let of_queue = lines.iter().filter(|line| line["queue"] == queue);
        of_queue
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(said("small").contains("1 MiB"), "{}", said("small"));
    assert!(!said("large").contains("1 MiB"), "{}", said("large"));
}

#[test]
fn a_host_without_a_file_needs_none() {
    let place = Place(TempDir::new().unwrap());
    place.run(&["send", "x"], 0);
    let echo = guest("echo").display().to_string();
    place.run(&["--handler", &echo, "--exit-when-empty"], 0);
    let stats = stdout(&place.run(&["stats", "--json"], 0));
    assert!(stats.contains("\"ready\":0"), "{stats}");
}

#[test]
fn it_is_told_where_the_file_was_looked_for() {
    let place = Place(TempDir::new().unwrap());
    let of_user = place.0.path().join("config/dqhost").display().to_string();
    let nowhere = format!("there is no dqhost.toml here nor in {of_user}; ");
    for (args, code) in [
        (&["config", "check"][..], 2),
        (&["schedule", "list"], 0),
        (&["schedule", "pause", "daily"], 2),
        (&["schedule", "run", "daily"], 2),
    ] {
        let told = stderr(&place.run(args, code));
        assert!(told.contains(&nowhere), "{args:?}: {told}");
    }
    let place = Place::with("[queue.a]\n");
    let told = stderr(&place.run(&["schedule", "list"], 0));
    assert!(told.starts_with("dqhost.toml has no schedule: "), "{told}");
}

#[test]
fn what_is_hidden_is_shown_as_a_comment() {
    let place = Place::with(
        "redis = \"redis://:hunter2@localhost\"\nenv = { A = \"hunter2\" }\n[queue.a]\nenv = { B = \"c\" }\n",
    );
    let text = stdout(&place.run(&["config", "show"], 0));
    for line in [
        "# redis = \"redis://***@localhost\"",
        "# env = { A = \"***\" }",
        "# env = { B = \"***\" }",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    let again = Place::with(&text);
    let text = stdout(&again.run(&["config", "show"], 0));
    assert!(!text.contains("***"), "{text}");
}

#[test]
fn keys_that_exclude_each_other_are_told_with_a_line() {
    let place = Place::with(
        "slots = 2\n\n[queue.a]\nrate = \"1/s\"\nfair-by = \"header:t\"\nlimit-by = \"header:t\"\n",
    );
    let told = stderr(&place.run(&["config", "check"], 2));
    let place = "error: dqhost.toml:5: queue a: --fair-by and --limit-by do not go together: ";
    assert!(told.starts_with(place), "{told}");
}
