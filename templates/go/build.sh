#!/bin/sh
# Builds build/handler.wasm.
set -eu
GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-checklinkname=0 -s -w" -o build/core.wasm .
dqhost component build/core.wasm --output build/handler.wasm
