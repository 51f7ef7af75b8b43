#!/bin/sh
# Makes the archive of a release: archive.sh PROGRAM TARGET FOLDER. PROGRAM is a `dqhost` that runs here, and TARGET
# the system that it was built for, as Rust names it. The archive comes into FOLDER, with its SHA-256 beside it.
# Works with the tools of Linux and of macOS.
set -eu

program=$1
target=$2
folder=$3
source=$(cd "$(dirname "$0")/.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022

version=$("$program" --version | sed -n 's/^dqhost \([0-9][0-9A-Za-z.+-]*\)$/\1/p')
if [ -z "$version" ]; then
    echo "archive.sh: $program does not tell a version of dqhost" >&2
    exit 1
fi
name=dqhost-$version-$target

mkdir -p "$root/$name/completions" "$folder"
cp "$program" "$root/$name/dqhost"
chmod 755 "$root/$name/dqhost"
for file in README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT docs/dqhost.service docs/dqhost.socket; do
    cp "$source/$file" "$root/$name/"
done
"$program" completions bash >"$root/$name/completions/dqhost.bash"
"$program" completions zsh >"$root/$name/completions/_dqhost"
"$program" completions fish >"$root/$name/completions/dqhost.fish"
"$program" man "$root/$name/man1" >/dev/null

tar -czf "$folder/$name.tar.gz" -C "$root" "$name"
cd "$folder"
if command -v sha256sum >/dev/null; then
    sha256sum "$name.tar.gz" >"$name.tar.gz.sha256"
else
    shasum -a 256 "$name.tar.gz" >"$name.tar.gz.sha256"
fi
echo "$name.tar.gz"
