#!/usr/bin/env bash
# Runs every check, also after one has failed, and tells at the end which have.
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
