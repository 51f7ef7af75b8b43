//! `dqhost wit` among what others have prepared.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{dqhost, expect, run, stderr, stdout};

const FILES: [&str; 2] = ["queue.wit", "deps/logging/logging.wit"];

fn wit(folder: &Path, code: i32) -> Output {
    run(None, &["wit", folder.to_str().unwrap()], code)
}

#[test]
fn the_interface_is_written_once_and_a_file_that_differs_stays() {
    let folder = TempDir::new().unwrap();
    let at = folder.path().join("new/wit");
    for _ in 0..2 {
        assert_eq!(stdout(&wit(&at, 0)).lines().count(), FILES.len());
    }
    for name in FILES {
        let ours = fs::read(Path::new("wit").join(name)).unwrap();
        assert_eq!(fs::read(at.join(name)).unwrap(), ours);
    }
    let in_folder = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!(
        (in_folder(&at), in_folder(&at.join("deps/logging"))),
        (2, 1)
    );
    fs::write(at.join(FILES[1]), "mine").unwrap();
    fs::remove_file(at.join(FILES[0])).unwrap();
    let refusal = stderr(&wit(&at, 2));
    assert!(refusal.contains("is there and differs"), "{refusal}");
    assert_eq!(fs::read(at.join(FILES[1])).unwrap(), b"mine");
    assert!(!at.join(FILES[0]).exists());
}

#[test]
fn the_interface_is_not_written_through_a_link() {
    let folder = TempDir::new().unwrap();
    let (at, outside) = (folder.path().join("wit"), folder.path().join("outside"));
    fs::create_dir(&at).unwrap();
    symlink(&outside, at.join(FILES[0])).unwrap();
    let refusal = stderr(&wit(&at, 2));
    assert!(
        refusal.contains("queue.wit is a symbolic link"),
        "{refusal}"
    );
    assert!(!outside.exists() && !at.join("deps").exists());
}

#[test]
fn a_pipe_in_the_place_of_the_interface_is_not_waited_for() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join(FILES[0]);
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let mut child = dqhost(None, &["wit", folder.path().to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let refusal = stderr(&expect(child.wait_with_output().unwrap(), 2));
    assert!(refusal.contains("queue.wit is a named pipe"), "{refusal}");
}

#[test]
fn an_interface_that_cannot_be_written_whole_is_not_left_in_part() {
    let folder = TempDir::new().unwrap();
    let program = dqhost::<&str>(None, &[]).get_program().to_owned();
    // The second file fits into what is allowed, the first does not.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$0\" wit \"$1\""])
        .arg(program)
        .arg(folder.path())
        .output()
        .unwrap();
    let refusal = stderr(&expect(output, 1));
    assert!(refusal.contains("cannot write"), "{refusal}");
    assert!(refusal.contains("queue.wit"), "{refusal}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    wit(folder.path(), 0);
}

#[test]
fn a_file_in_the_place_of_a_folder_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refusal = stderr(&wit(&file, 2));
    let says = format!("{} is not a folder: remove it", file.display());
    assert!(refusal.contains(&says), "{refusal}");
    let at = folder.path().join("wit");
    fs::create_dir(&at).unwrap();
    symlink("nothing", at.join("deps")).unwrap();
    let refusal = stderr(&wit(&at, 2));
    assert!(refusal.contains("deps is not a folder"), "{refusal}");
    assert!(!at.join(FILES[0]).exists());
}
