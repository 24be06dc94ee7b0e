#!/usr/bin/env bash
# Checks all shell scripts, and the workflows with the scripts in them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
if command -v shellcheck >/dev/null; then
    shellcheck "${scripts[@]}"
else
    echo "shellcheck is not installed: this checks only the syntax of scripts, and CI checks the rest" >&2
fi
for script in "${scripts[@]}"; do
    bash -n "$script"
    [[ -x $script ]] || { echo "$script is not executable" >&2; exit 1; }
done
CGO_ENABLED=0 go tool -modfile=hack/tools/go.mod actionlint
# A tag can be moved to other code, a commit cannot.
if grep -nE '\buses:' .github/workflows/*.yaml | grep -vE 'uses: [^@ ]+@[0-9a-f]{40} # v[0-9.]+$'; then
    echo "pin these actions by a whole commit, with the version behind it: uses: owner/action@COMMIT # v1.2.3" >&2
    exit 1
fi
mapfile -t targets < <(grep -ohP '\bmake \K[a-z][a-z -]*' .github/workflows/*.yaml | tr -s ' ' '\n')
for target in "${targets[@]}"; do
    grep -q "^$target:" Makefile || { echo "a workflow runs make $target, which is not there" >&2; exit 1; }
done
