#!/bin/sh
# Makes an image for containers (OCI): image.sh PROGRAM FOLDER. PROGRAM is a `dqhost` that runs here. The image
# has it, the shared libraries that it needs, the public CAs and a user without rights, and no shell. It comes
# into FOLDER as an archive. Needs umoci and GNU tar, and neither root nor a daemon.
set -eu

program=$1
folder=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022

version=$("$program" --version | sed -n 's/^dqhost \([0-9][0-9A-Za-z.+-]*\)$/\1/p')
if [ -z "$version" ]; then
    echo "image.sh: $program does not tell a version of dqhost" >&2
    exit 1
fi
command -v umoci >/dev/null || { echo "image.sh: umoci is missing (Debian: apt-get install umoci)" >&2; exit 1; }
case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) architecture=$(uname -m) ;;
esac

install -D -m 755 "$program" "$root/usr/bin/dqhost"
# A line is `name => path (address)`, or only the path of the loader.
ldd "$program" | sed -n 's/^.*[[:space:]]\(\/[^ ]*\) (0x[0-9a-f]*)$/\1/p' | while read -r library; do
    install -D -m 755 "$library" "$root$library"
done
certificates=/etc/ssl/certs/ca-certificates.crt
[ -e $certificates ] || { echo "image.sh: $certificates is missing (Debian: apt-get install ca-certificates)" >&2; exit 1; }
install -D -m 644 $certificates "$root$certificates"
mkdir -p "$root/etc" "$root/tmp" "$root/data"
echo 'nonroot:x:65532:65532::/data:/nonexistent' >"$root/etc/passwd"
echo 'nonroot:x:65532:' >"$root/etc/group"
chmod 1777 "$root/tmp"
chmod 700 "$root/data"

# The same program makes the same layer: no times and no order of the folder are in it.
layer=$root/layer.tar
archive() {
    tar --sort=name --mtime=@0 --numeric-owner --format=gnu -C "$root" "$@"
}
(cd "$root" && find . -mindepth 1 -maxdepth 1 ! -name data ! -name layer.tar | sed 's|^\./||' | LC_ALL=C sort) |
    archive --owner=0 --group=0 -cf "$layer" --files-from=-
archive --owner=65532 --group=65532 -rf "$layer" data

image=$root/oci
umoci init --layout "$image"
umoci new --image "$image:$version"
umoci raw add-layer --image "$image:$version" --history.created_by "image.sh" "$layer"
umoci config --image "$image:$version" --architecture "$architecture" --os linux \
    --config.user 65532:65532 --config.workingdir /data --config.volume /data --config.exposedports 7420 \
    --config.env XDG_CACHE_HOME=/tmp --config.env XDG_DATA_HOME=/data --config.env XDG_STATE_HOME=/tmp \
    --config.env PATH=/usr/bin --config.entrypoint /usr/bin/dqhost --config.cmd --help
umoci gc --layout "$image"
made=$folder/dqhost_${version}_$architecture.oci.tar
tar --sort=name -C "$image" -cf "$made" .
echo "$made"
