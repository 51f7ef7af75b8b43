#!/bin/sh
# Makes a Debian package: deb.sh PROGRAM FOLDER. PROGRAM is a `dqhost` that runs here: it tells its version, and
# writes its completions and manual pages. The package comes into FOLDER. Needs dpkg-deb only.
set -eu

program=$1
folder=$2
source=$(cd "$(dirname "$0")/.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022
chmod 755 "$root"

# A version such as 1.0.0-rc.1 comes before 1.0.0.
version=$("$program" --version | sed -n 's/^dqhost \([0-9][0-9A-Za-z.+-]*\)$/\1/p' | sed 's/-/~/')
if [ -z "$version" ]; then
    echo "deb.sh: $program does not tell a version of dqhost" >&2
    exit 1
fi
architecture=$(dpkg --print-architecture)

put() {
    install -D -m "$1" "$2" "$root/$3"
}

put 755 "$program" usr/bin/dqhost
mkdir -p "$root/usr/lib/systemd/system"
for unit in dqhost.service dqhost.socket; do
    sed -e 's|/usr/local/bin/dqhost|/usr/bin/dqhost|' -e 's|/etc/systemd/system/|/usr/lib/systemd/system/|' \
        "$source/docs/$unit" >"$root/usr/lib/systemd/system/$unit"
done
put 644 "$source/packaging/deb/dqhost.toml" etc/dqhost/dqhost.toml

completions() {
    mkdir -p "$(dirname "$root/$2")"
    "$program" completions "$1" >"$root/$2"
}
completions bash usr/share/bash-completion/completions/dqhost
completions zsh usr/share/zsh/vendor-completions/_dqhost
completions fish usr/share/fish/vendor_completions.d/dqhost.fish
"$program" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1

put 644 "$source/CHANGELOG.md" usr/share/doc/dqhost/changelog
gzip -9n "$root/usr/share/doc/dqhost/changelog"
{
    cat "$source/packaging/deb/copyright"
    sed -e 's/^$/./' -e 's/^/ /' "$source/LICENSE-MIT"
} >"$root/usr/share/doc/dqhost/copyright"

# The newest symbol of the C library that the program asks for; none if it is linked statically.
libc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$program" | sort -Vu | tail -n 1 | sed 's/GLIBC_//')
depends=${libc:+"libc6 (>= $libc), libgcc-s1"}
size=$(du -sk "$root" | cut -f1)

mkdir "$root/DEBIAN"
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
    -e "s/@DEPENDS@/$depends/" -e '/^Depends: $/d' "$source/packaging/deb/control" >"$root/DEBIAN/control"
echo /etc/dqhost/dqhost.toml >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    put 755 "$source/packaging/deb/$script" "DEBIAN/$script"
done

mkdir -p "$folder"
dpkg-deb --root-owner-group --build "$root" "$folder/dqhost_${version}_$architecture.deb"
