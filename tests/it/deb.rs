//! The Debian package: it is built, installed, upgraded, removed and purged by Debian's own dpkg, in a folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::{expect, stderr, stdout};

const CONFFILE: &str = "etc/dqhost/dqhost.toml";

/// What the package needs of a system: its own part of Debian's list, and an empty one of files.
const SYSTEM: &str = "\
Package: libc6
Status: install ok installed
Version: 2.99
Architecture: all
Maintainer: nobody
Description: stands for the C library

Package: libgcc-s1
Status: install ok installed
Version: 99
Architecture: all
Maintainer: nobody
Description: stands for the library of the compiler
";

pub(crate) fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A program that is this dqhost but for its version, and as small as packages of tests should be.
pub(crate) fn program(folder: &Path, version: &str) -> PathBuf {
    let path = folder.join(format!("dqhost-{version}"));
    let dqhost = env!("CARGO_BIN_EXE_dqhost");
    let script = format!(
        "#!/bin/sh\n# GLIBC_2.4 GLIBC_2.30 GLIBC_2.5\n\
         if [ \"$1\" = --version ]; then echo 'dqhost {version}'; else exec '{dqhost}' \"$@\"; fi\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// The tools of the system, those of administrators too.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Builds the package of a version.
fn package(folder: &Path, version: &str) -> PathBuf {
    let mut build = tool("sh");
    build.arg(in_repository("packaging/deb.sh"));
    build.arg(program(folder, version)).arg(folder);
    let printed = stdout(&expect(build.output().unwrap(), 0));
    let path = printed.rsplit('\'').nth(1).unwrap();
    PathBuf::from(path)
}

fn dpkg_deb(args: &[&str], package: &Path) -> String {
    let mut command = tool("dpkg-deb");
    let output = command.arg(args[0]).arg(package).args(&args[1..]).output();
    let output = output.expect("dpkg-deb must be installed (Debian has it)");
    stdout(&expect(output, 0))
}

/// A system in a folder.
struct System(TempDir);

impl System {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for path in ["info", "updates", "triggers"] {
            fs::create_dir_all(folder.path().join("var/lib/dpkg").join(path)).unwrap();
        }
        let system = Self(folder);
        fs::write(system.path("var/lib/dpkg/status"), SYSTEM).unwrap();
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn dpkg<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> String {
        let mut command = tool("dpkg");
        let root = self.0.path().display();
        command.arg(format!("--root={root}"));
        command.arg(format!("--log={root}/dpkg.log"));
        // The scripts of the package know a root that is not theirs.
        command.args(["--force-script-chrootless", "--force-not-root"]);
        stdout(&expect(command.args(args).output().unwrap(), 0))
    }

    fn install(&self, package: &Path) -> String {
        self.dpkg(&[Path::new("--force-confold"), Path::new("-i"), package])
    }

    fn status(&self) -> String {
        let mut command = tool("dpkg-query");
        let list = format!("--admindir={}", self.path("var/lib/dpkg").display());
        let format = "--showformat=${Version} ${db:Status-Status}";
        command.args([&list, "--show", format, "dqhost"]);
        stdout(&command.output().unwrap())
    }

    fn conffile(&self) -> String {
        fs::read_to_string(self.path(CONFFILE)).unwrap()
    }
}

#[test]
fn a_package_has_the_program_its_units_and_its_pages() {
    let folder = TempDir::new().unwrap();
    let package = package(folder.path(), "1.2.0-rc.1");
    let name = package.file_name().unwrap().to_str().unwrap();
    // It comes before 1.2.0.
    assert!(name.starts_with("dqhost_1.2.0~rc.1_"), "{name}");
    let info = dpkg_deb(&["--field"], &package);
    for line in [
        "Package: dqhost",
        "Version: 1.2.0~rc.1",
        "Depends: libc6 (>= 2.30), libgcc-s1",
    ] {
        assert!(info.lines().any(|other| other == line), "{line}: {info}");
    }
    let contents = dpkg_deb(&["--contents"], &package);
    for (mode, path) in [
        ("-rwxr-xr-x", "usr/bin/dqhost"),
        ("-rw-r--r--", "usr/lib/systemd/system/dqhost.service"),
        ("-rw-r--r--", "usr/lib/systemd/system/dqhost.socket"),
        ("-rw-r--r--", CONFFILE),
        ("-rw-r--r--", "usr/share/bash-completion/completions/dqhost"),
        ("-rw-r--r--", "usr/share/zsh/vendor-completions/_dqhost"),
        (
            "-rw-r--r--",
            "usr/share/fish/vendor_completions.d/dqhost.fish",
        ),
        ("-rw-r--r--", "usr/share/man/man1/dqhost.1.gz"),
        ("-rw-r--r--", "usr/share/man/man1/dqhost-dead-try.1.gz"),
        ("-rw-r--r--", "usr/share/doc/dqhost/copyright"),
        ("-rw-r--r--", "usr/share/doc/dqhost/changelog.gz"),
    ] {
        let line = contents
            .lines()
            .find(|line| line.ends_with(&format!(" ./{path}")));
        let line = line.unwrap_or_else(|| panic!("{path}: {contents}"));
        assert!(line.starts_with(&format!("{mode} root/root ")), "{line}");
    }
    let unpacked = folder.path().join("unpacked");
    dpkg_deb(&["--raw-extract", unpacked.to_str().unwrap()], &package);
    let unit = unpacked.join("usr/lib/systemd/system/dqhost.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/dqhost up "), "{unit}");
    let sums = tool("md5sum")
        .args(["--check", "--quiet", "DEBIAN/md5sums"])
        .current_dir(&unpacked)
        .output();
    assert_eq!(stdout(&expect(sums.unwrap(), 0)), "");
    let settings = unpacked.join(CONFFILE);
    let check = ["config", "check", "--config", settings.to_str().unwrap()];
    crate::support::run(None, &check, 0);
}

#[test]
fn a_package_is_installed_upgraded_removed_and_purged() {
    let folder = TempDir::new().unwrap();
    let (old, new) = (
        package(folder.path(), "0.0.9"),
        package(folder.path(), "0.1.0"),
    );
    let system = System::new();
    system.install(&old);
    assert_eq!(system.status(), "0.0.9 installed");
    let program = system.path("usr/bin/dqhost");
    let output = Command::new(&program).arg("--version").output().unwrap();
    assert_eq!(stdout(&output), "dqhost 0.0.9\n");
    // It is enabled by whoever has written its settings.
    assert!(!system.path("etc/systemd/system").exists());
    let changed = "slots = 7\n";
    fs::write(system.path(CONFFILE), changed).unwrap();
    let messages = system.path("var/lib/private/dqhost/dqhost.db");
    let compiled = system.path("var/cache/private/dqhost/handler");
    for path in [&messages, &compiled] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    system.install(&new);
    assert_eq!(system.status(), "0.1.0 installed");
    assert_eq!(system.conffile(), changed);
    // Both sides have changed it: the own one stays, and the new one is beside it.
    let unpacked = folder.path().join("unpacked");
    dpkg_deb(&["--raw-extract", unpacked.to_str().unwrap()], &new);
    let control = unpacked.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    fs::write(&control, text.replace("Version: 0.1.0", "Version: 0.2.0")).unwrap();
    fs::write(unpacked.join(CONFFILE), "# new\n").unwrap();
    let newer = folder.path().join("newer.deb");
    let newer_path = newer.to_str().unwrap();
    dpkg_deb(&["--build", newer_path], &unpacked);
    system.install(&newer);
    assert_eq!(system.status(), "0.2.0 installed");
    assert_eq!(system.conffile(), changed);
    let beside = fs::read_to_string(system.path("etc/dqhost/dqhost.toml.dpkg-dist"));
    assert_eq!(beside.unwrap(), "# new\n");
    system.dpkg(&["--remove", "dqhost"]);
    assert!(!program.exists());
    assert_eq!(system.conffile(), changed);
    assert!(compiled.exists());
    let told = system.dpkg(&["--purge", "dqhost"]);
    assert!(!system.path("etc/dqhost").exists());
    assert!(!compiled.exists());
    // Messages are never removed, and that is said.
    assert!(messages.exists());
    assert!(told.contains("the messages stay in "), "{told}");
}

/// Runs a script of the package as dpkg does on a system with systemd, of which it is told what it
/// would do.
fn script(folder: &TempDir, name: &str, args: &[&str]) -> Vec<String> {
    let tools = folder.path().join("tools");
    let log = folder.path().join("log");
    fs::create_dir_all(&tools).unwrap();
    for tool in ["systemctl", "deb-systemd-invoke"] {
        let path = tools.join(tool);
        let script = format!("#!/bin/sh\necho {tool} \"$@\" >>{}\n", log.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    let with_systemd = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", with_systemd, "sh"]);
    command
        .arg(in_repository(&format!("packaging/deb/{name}")))
        .args(args);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", tools.display()));
    command.env_remove("DPKG_ROOT");
    let output = expect(command.output().unwrap(), 0);
    assert_eq!(stderr(&output), "");
    let told = fs::read_to_string(&log).unwrap_or_default();
    fs::remove_file(&log).unwrap_or_default();
    told.lines().map(str::to_owned).collect()
}

#[test]
fn an_upgrade_restarts_a_service_that_runs_and_a_removal_stops_it() {
    let folder = TempDir::new().unwrap();
    let reload = "systemctl --system daemon-reload";
    let restart = "deb-systemd-invoke try-restart dqhost.service";
    let stop = "deb-systemd-invoke stop dqhost.socket dqhost.service";
    for (name, args, told) in [
        (
            "postinst",
            &["configure", ""] as &[&str],
            &[reload] as &[&str],
        ),
        ("postinst", &["configure"], &[reload]),
        ("postinst", &["configure", "0.0.9"], &[reload, restart]),
        ("postinst", &["abort-upgrade", "0.0.9"], &[]),
        ("prerm", &["upgrade", "0.1.0"], &[]),
        ("prerm", &["remove"], &[stop]),
        ("postrm", &["upgrade", "0.1.0"], &[]),
        ("postrm", &["remove"], &[reload]),
    ] {
        assert_eq!(script(&folder, name, args), told, "{name} {args:?}");
    }
}
