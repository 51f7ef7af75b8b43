//! The archives of a release: what is in them, and that the workflow adds those that are made.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use yaml_rust2::{Yaml, YamlLoader};

use crate::deb::{in_repository, program};
use crate::support::{expect, stderr, stdout};

const VERSION: &str = "1.2.3";

/// Stands for GitHub's tool: notes what it is asked, and refuses a file that is not there.
const GH: &str = "\
#!/bin/sh
for word; do
    case $word in target/*) test -f \"$word\" || exit 1 ;; esac
done
echo \"$@\" >>asked
";

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_archive_has_the_program_and_what_belongs_to_it() {
    let folder = TempDir::new().unwrap();
    let archive = |program: &Path, code| {
        let mut command = Command::new("sh");
        command.arg(in_repository("packaging/archive.sh"));
        command.arg(program).arg("some-target").arg(folder.path());
        expect(command.output().unwrap(), code)
    };
    let made = stdout(&archive(&program(folder.path(), VERSION), 0));
    assert_eq!(made, "dqhost-1.2.3-some-target.tar.gz\n");
    let unpack = "sha256sum -c ./*.sha256 && tar -xzf ./*.tar.gz && cd dqhost-1.2.3-some-target && \
                  ./dqhost --version && find . -type f | sort";
    let mut unpack_it = Command::new("sh");
    unpack_it.args(["-euc", unpack]).current_dir(folder.path());
    let told = stdout(&expect(unpack_it.output().unwrap(), 0));
    for line in [
        "dqhost-1.2.3-some-target.tar.gz: OK",
        "dqhost 1.2.3",
        "./CHANGELOG.md",
        "./LICENSE-APACHE",
        "./LICENSE-MIT",
        "./README.md",
        "./completions/_dqhost",
        "./completions/dqhost.bash",
        "./completions/dqhost.fish",
        "./dqhost.service",
        "./dqhost.socket",
        "./man1/dqhost-send.1",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}: {told}");
    }
    let nonsense = folder.path().join("nonsense");
    executable(&nonsense, "#!/bin/sh\necho nonsense\n");
    let told = stderr(&archive(&nonsense, 1));
    assert!(told.contains("does not tell a version"), "{told}");
}

/// The steps of a job.
fn steps<'y>(workflow: &'y Yaml, job: &str) -> &'y [Yaml] {
    workflow["jobs"][job]["steps"].as_vec().unwrap()
}

#[test]
fn the_workflow_adds_the_archives_that_are_made_and_uses_no_action() {
    let text = fs::read_to_string(in_repository(".github/workflows/release.yml")).unwrap();
    let workflow = &YamlLoader::load_from_str(&text).unwrap()[0];
    let jobs = ["draft", "build", "publish"];
    assert_eq!(workflow["jobs"].as_hash().unwrap().len(), jobs.len());
    let folder = TempDir::new().unwrap();
    let at = |path: &str| folder.path().join(path);
    for name in [
        "packaging",
        "docs",
        "README.md",
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
    ] {
        symlink(in_repository(name), at(name)).unwrap();
    }
    fs::create_dir_all(at("target/release")).unwrap();
    fs::copy(program(folder.path(), VERSION), at("target/release/dqhost")).unwrap();
    fs::create_dir(at("bin")).unwrap();
    executable(&at("bin/gh"), GH);
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let step = |step: &Yaml, tag: &str, target: &str| {
        let mut command = Command::new("bash");
        command
            .args(["-eo", "pipefail", "-c", step["run"].as_str().unwrap()])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("GITHUB_REPOSITORY", "someone/dqhost")
            .env("GITHUB_REF_NAME", tag)
            .env("TARGET", target);
        command.output().unwrap().status.success()
    };
    let targets = workflow["jobs"]["build"]["strategy"]["matrix"]["include"].as_vec();
    let targets = targets
        .unwrap()
        .iter()
        .map(|one| one["target"].as_str().unwrap());
    let targets: Vec<&str> = targets.collect();
    // No build script of a dependency has the token.
    assert!(workflow["env"].is_badvalue());
    for job in jobs {
        for one in steps(workflow, job) {
            let has_token = !one["env"]["GH_TOKEN"].is_badvalue();
            assert_eq!(has_token, one["run"].as_str().unwrap().contains("gh "));
            assert!(one["uses"].is_badvalue(), "{one:?}");
            let is_build = one["name"].as_str() == Some("Build");
            assert!(is_build || step(one, "v1.2.3", targets[0]), "{one:?}");
        }
    }
    let asked = fs::read_to_string(at("asked")).unwrap();
    let added = "release upload v1.2.3 target/dqhost-1.2.3-x86_64-unknown-linux-gnu.tar.gz \
                 target/dqhost-1.2.3-x86_64-unknown-linux-gnu.tar.gz.sha256 --clobber --repo someone/dqhost";
    assert!(asked.lines().any(|line| line == added), "{asked}");
    assert!(asked.ends_with("--draft=false\n"), "{asked}");
    // A tag of another version adds nothing.
    let add = steps(workflow, "build").last().unwrap();
    assert!(!step(add, "v1.2.4", targets[0]));
    let page = include_str!("../../docs/install.md");
    for target in targets {
        assert!(page.contains(&format!("`{target}`")), "{target}");
    }
}
