#!/usr/bin/env bash
# Updates Debian's package lists, and waits for up to five minutes while another process does: apt-get fails at once.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for _ in {1..60}; do
    apt-get update >"$log" 2>&1 && exit 0
    grep -q 'Could not get lock' "$log" || break
    sleep 5
done
cat "$log" >&2
exit 1
