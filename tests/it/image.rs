//! The image for containers: it is made, and what is in it runs with nothing else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{expect, guest, stderr, stdout};

fn image(program: &Path, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/image.sh");
    let mut command = Command::new("sh");
    command.arg(script).arg(program).arg(folder);
    command.output().unwrap()
}

/// The parts of an image, unpacked as the program of a runtime would do it.
struct Unpacked {
    folder: TempDir,
    config: Value,
}

impl Unpacked {
    fn new(archive: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        let layout = folder.path().join("layout");
        fs::create_dir(&layout).unwrap();
        let mut tar = Command::new("tar");
        let tar = tar.arg("-xf").arg(archive).arg("-C").arg(&layout);
        expect(tar.output().unwrap(), 0);
        let mut umoci = Command::new("umoci");
        umoci.args(["unpack", "--rootless", "--image"]);
        let version = env!("CARGO_PKG_VERSION");
        umoci.arg(format!("{}:{version}", layout.display()));
        expect(umoci.arg(folder.path().join("bundle")).output().unwrap(), 0);
        let config = fs::read(folder.path().join("bundle/config.json")).unwrap();
        Self {
            config: serde_json::from_slice(&config).unwrap(),
            folder,
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("bundle/rootfs")
    }

    /// What its entry point does with these arguments, in a root of its own with its environment.
    fn run(&self, args: &[&str]) -> Output {
        let process = &self.config["process"];
        let words = process["args"].as_array().unwrap();
        let (program, rest) = words.split_first().unwrap();
        assert_eq!(rest, ["--help"]);
        let environment = process["env"].as_array().unwrap();
        let environment = environment
            .iter()
            .map(|pair| pair.as_str().unwrap().split_once('=').unwrap());
        let mut inside = Command::new("unshare");
        inside
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .arg("mount --rbind /proc proc && shift && exec env -i \"$@\"")
            .args(["sh", "--"])
            .args(environment.map(|(name, value)| format!("{name}={value}")))
            .args(["/usr/sbin/chroot", ".", program.as_str().unwrap()])
            .args(args)
            .current_dir(self.root());
        inside
            .output()
            .expect("unshare must be installed (Debian has it)")
    }
}

#[test]
fn the_image_has_what_dqhost_needs_and_handles_a_message() {
    let folder = TempDir::new().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_dqhost"));
    let printed = stdout(&expect(image(program, folder.path()), 0));
    let archive = PathBuf::from(printed.trim_end());
    assert!(archive.starts_with(folder.path()), "{printed}");
    let image = Unpacked::new(&archive);
    let user = &image.config["process"]["user"];
    assert_eq!((&user["uid"], &user["gid"]), (&65532.into(), &65532.into()));
    let root = image.root();
    assert!(!root.join("bin/sh").exists() && !root.join("usr/bin/sh").exists());
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (mode("data"), mode("tmp"), mode("usr/bin/dqhost")),
        (0o700, 0o1777, 0o755)
    );
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::copy(guest("noop"), root.join("data/orders.wasm")).unwrap();
    let says = stdout(&expect(image.run(&["--version"]), 0));
    assert_eq!(
        says.trim_end(),
        concat!("dqhost ", env!("CARGO_PKG_VERSION"))
    );
    expect(image.run(&["send", "17", "--queue", "orders"]), 0);
    let handle = ["--handler", "/data/orders.wasm", "--queue", "orders"];
    expect(
        image.run(&[&handle[..], &["--exit-when-empty", "--no-tui"]].concat()),
        0,
    );
    let stats = stdout(&expect(image.run(&["stats", "--json"]), 0));
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["queues"][0]["totals"]["acked"], 1, "{stats}");
    assert_eq!(stats["store"], "sqlite:///data/dqhost/dqhost.db");
}

#[test]
fn no_image_is_made_of_a_program_that_is_no_dqhost() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("other");
    fs::write(&program, "#!/bin/sh\necho other 1.0\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let refused = expect(image(&program, folder.path()), 1);
    assert!(
        stderr(&refused).contains("does not tell a version"),
        "{refused:?}"
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}
