#!/bin/sh
# Sees to what building needs: the toolchain of rust-toolchain.toml with its wasm target, and a C
# compiler. With `redis` as its argument, to what the tests need on top: Redis 7. Installs what it
# can, and says what is missing where it cannot.
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

[ "${1:-}" = redis ] || exit 0
if ! command -v redis-server >/dev/null; then
    if ! command -v apt-get >/dev/null; then
        missing "redis-server 7 or later; install it with your package manager"
    elif [ "$(id -u)" = 0 ]; then
        sudo=
    elif sudo -n true 2>/dev/null; then
        sudo=sudo
    else
        missing "redis-server 7 or later; install it with: sudo apt-get install redis-server"
    fi
    $sudo apt-get update -qq
    # The tests start servers of their own; the one that the package brings is not needed.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server >/dev/null
fi
version=$(redis-server --version | sed 's/.*v=\([0-9]*\).*/\1/')
[ "$version" -ge 7 ] || missing "redis-server 7 or later; this one is $version"
