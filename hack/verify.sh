#!/usr/bin/env bash
# Runs every check, even after one has failed, and reports the failed ones at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
for check in hack/verify-*.sh; do
    echo "== $check"
    start=$SECONDS
    "$check" || failed+=("$check")
    echo "   $((SECONDS - start)) s"
done
if ((${#failed[@]})); then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "all checks passed"
