#!/bin/sh
# Builds build/handler.wasm. CLANG may name another clang, such as the one of wasi-sdk.
set -eu
mkdir -p build
"${CLANG:-clang}" --target=wasm32-wasi -mexec-model=reactor -std=c17 -Oz -Wall -Wextra \
    -o build/core.wasm handler.c json.c bindings/*.c \
    -Wl,--strip-debug -Wl,-z,stack-size=131072
dqhost component build/core.wasm --output build/handler.wasm
