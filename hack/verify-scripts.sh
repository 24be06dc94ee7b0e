#!/usr/bin/env bash
# Checks all shell scripts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
shellcheck "${scripts[@]}"
for script in "${scripts[@]}"; do
    [[ -x $script ]] || { echo "$script is not executable" >&2; exit 1; }
done
