//! Settings of a store that another kind of store has.

use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, expect, guest, run, stderr};

const FOR_REDIS: [&[&str]; 3] = [
    &["--prefix", "x"],
    &["--no-hash-tag"],
    &["--allow-eviction"],
];

#[test]
fn a_flag_for_redis_is_refused_by_a_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    run(Some(&file), &["send", "x"], 0);
    let echo = guest("echo").display().to_string();
    for flag in FOR_REDIS {
        for command in [
            &["send", "x"][..],
            &["stats"],
            &["dead", "list"],
            &["up", "--handler", &echo, "--no-tui"],
            &["--handler", &echo, "--exit-when-empty"],
        ] {
            let args = [command, flag].concat();
            let refusal = stderr(&run(Some(&file), &args, 2));
            let says = format!(
                "error: {} is for Redis, and the store is not in Redis: leave it out",
                flag[0]
            );
            assert!(refusal.starts_with(&says), "{args:?}: {refusal}");
        }
    }
    // By default there is a file too.
    run(None, &["stats", "--no-hash-tag"], 2);
    let other = folder.path().join("other.db").display().to_string();
    let args = ["move", "--from", &file, "--to", &other, "--prefix", "x"];
    run(None, &args, 2);
    assert!(!folder.path().join("other.db").exists());
}

#[test]
fn a_setting_for_redis_in_the_environment_leaves_a_file_alone() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    let mut command = dqhost(Some(&file), &["send", "x"]);
    command.envs([("DQHOST_PREFIX", "x"), ("DQHOST_NO_HASH_TAG", "1")]);
    assert_eq!(stderr(&expect(command.output().unwrap(), 0)), "");
    // One of two stores is in Redis.
    let server = RedisServer::start();
    let url = server.url();
    let args = ["move", "--from", &file, "--to", &url, "--prefix", "x"];
    run(None, &args, 0);
    assert_eq!(server.command::<u64>(&["LLEN", "{x:default}:ready"]), 1);
    run(Some(&url), &["stats", "--no-hash-tag", "--prefix", "y"], 0);
}
