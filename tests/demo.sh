#!/bin/sh
# What `make demo` shows: orders that are looked at when their time to be paid is over. Each is
# acked, retried or dead, in a file of the demo's own. Argument 1: the folder of the built program;
# argument 2: that of the built handlers.
set -eu
program=$1/dqhost
handlers=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset DQHOST_REDIS REDIS_URL
export DQHOST_DB="$folder/demo.db"

step() { printf '\n\033[1m%s\033[0m\n' "$1"; }

step '1. Orders are sent, each to be looked at when its time to be paid is over:'
tee /dev/stderr <<'ORDERS' | "$program" send --queue orders --ndjson - >/dev/null
{"payload": {"order": "A-1", "status": "paid", "amount": 12.5}}
{"payload": {"order": "A-2", "status": "unpaid", "amount": 99}, "in": "1s"}
{"payload": {"order": "A-3", "status": "processing", "amount": 7, "check_again_ms": 500}, "in": "1500ms", "retries": 2}
{"payload": {"order": "A-4", "status": "eaten by the dog", "amount": 3}, "in": "2s"}
{"payload": "this is not an order", "in": "2500ms"}
{"payload": {"order": "A-6", "status": "paid", "amount": 40}, "in": "3s"}
ORDERS
"$program" stats

step '2. A host runs the handler on each when it is due, in a sandbox of its own:'
"$program" --queue "orders=$handlers/order_timeout.wasm" --exit-when-empty --no-tui

step '3. What failed for good is kept, with its reason:'
"$program" dead list --queue orders

step '4. And what happened to all:'
"$program" stats

step '5. The dashboard shows it live; without --no-tui the host would have opened it. One frame of it:'
COLUMNS=100 LINES=20 "$program" top --snapshot
