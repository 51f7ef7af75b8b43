#!/bin/sh
# Builds the handler and gives it messages by `dqhost run`.
set -eu
sh build.sh

# expect VERDICT PAYLOAD ATTEMPT: the verdict begins so.
expect() {
    # It fails if the message is not acked.
    told=$(dqhost run build/handler.wasm --allow-send mails --payload "$2" --attempt "$3" | sed -n 's/^verdict *//p')
    case $told in
        "$1"*) ;;
        *) echo "$2: $told, not $1" >&2 && exit 1 ;;
    esac
}

unpaid='{"order": "A-2", "status": "unpaid"}'
expect "acked" '{"order": "A-1", "status": "paid"}' 1
expect "nacked: order A-2 is not paid yet, to be retried in 1000 ms" "$unpaid" 1
expect "acked" "$unpaid" 2
expect "rejected: not an order" 'hello' 1
expect 'rejected: order A-3 has the unknown status "lost"' '{"order": "A-3", "status": "lost"}' 1
echo "all verdicts are as expected"
