//! How often a message may be redriven.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::http_api::{Api, with_each_store};
use crate::support::{guest, run, stats, stderr, stdout};

/// Handles the queue until it is empty; every message is rejected.
fn serve(store: &str) {
    let handler = format!("q={}", guest("reject").display());
    run(
        Some(store),
        &["up", "--queue", &handler, "--exit-when-empty"],
        0,
    );
}

/// The only dead letter.
fn dead(store: &str) -> Value {
    let listed = stdout(&run(Some(store), &["dead", "list", "-q", "q", "--json"], 0));
    serde_json::from_str(listed.trim()).unwrap()
}

fn redrive(store: &str, more: &[&str], code: i32) -> std::process::Output {
    let args = [&["dead", "redrive", "-q", "q"], more].concat();
    run(Some(store), &args, code)
}

#[test]
fn a_message_is_redriven_so_often_and_more_only_when_forced() {
    with_each_store(|store| {
        run(Some(store), &["send", "poison", "-q", "q"], 0);
        serve(store);
        assert_eq!(dead(store)["redrives"], 0);
        let none = stderr(&redrive(store, &["--all", "--max-redrives", "0"], 1));
        assert!(
            none.contains("is not redriven: --max-redrives 0 allows none; --force"),
            "{none}"
        );
        for redrives in 1..=2 {
            redrive(store, &["--all", "--max-redrives", "2"], 0);
            serve(store);
            assert_eq!(dead(store)["redrives"], redrives);
        }
        let id = dead(store)["id"].as_str().unwrap().to_owned();
        let text = stdout(&run(Some(store), &["get", &id, "-q", "q"], 0));
        assert!(text.contains("redrives      2\n"), "{text}");
        for more in [
            &["--all", "--max-redrives", "2"][..],
            &["--all", "--max-redrives", "2", "--dry-run"],
        ] {
            let refused = redrive(store, more, 1);
            assert!(
                stderr(&refused)
                    .contains("is not redriven: it was redriven twice already; --force"),
                "{refused:?}"
            );
        }
        let other = redrive(
            store,
            &[
                &id,
                "--max-redrives",
                "1",
                "--to",
                "other",
                "--create",
                "--json",
            ],
            1,
        );
        let told: Value = serde_json::from_str(stdout(&other).trim()).unwrap();
        assert_eq!(
            told,
            serde_json::json!({"id": id, "outcome": "redriven-too-often", "redrives": 2})
        );
        assert_eq!(stats(store, "q")["dead"], 1);
        redrive(store, &["--all", "--max-redrives", "3"], 0);
        serve(store);
        redrive(store, &["--all", "--max-redrives", "1", "--force"], 0);
        serve(store);
        assert_eq!(dead(store)["redrives"], 4);
    });
}

#[test]
fn the_settings_of_a_queue_hold_for_commands_and_for_the_http_api_of_its_host() {
    with_each_store(|store| {
        let folder = TempDir::new().unwrap();
        let config = folder.path().join("dqhost.toml");
        let of_store = if store.contains("://") { "redis" } else { "db" };
        let handler = guest("reject").display().to_string();
        let text = format!(
            "{of_store} = {store:?}\nhandler = {handler:?}\nmax-redrives = 9\n[queue.q]\nmax-redrives = 1\n"
        );
        fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        run(Some(store), &["send", "poison", "-q", "q"], 0);
        serve(store);
        let all = ["dead", "redrive", "-q", "q", "--all", "--config", &config];
        run(None, &all, 0);
        serve(store);
        let refused = run(None, &all, 1);
        assert!(
            stderr(&refused).contains("redriven once already"),
            "{refused:?}"
        );
        // A flag goes before the file.
        run(
            None,
            &[&all[..], &["--max-redrives", "2", "--dry-run"]].concat(),
            0,
        );

        let api = Api::beside(store, &["--config", &config]);
        let id = dead(store)["id"].as_str().unwrap().to_owned();
        let path = format!("/queues/q/dead/{id}/redrive");
        api.post(&path, &[], "")
            .is_problem(409, "it was redriven once already");
        api.post_json(&path, r#"{"force":true}"#).is(201);
    });
}
