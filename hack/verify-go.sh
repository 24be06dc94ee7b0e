#!/usr/bin/env bash
# Checks the format, the module files and the static analysis of all Go code, but for that of what `make lint` looks at.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0

mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.go')
unformatted=$(gofmt -l "${files[@]}")
[[ -z $unformatted ]] || { printf 'not formatted, run gofmt -w:\n%s\n' "$unformatted" >&2; exit 1; }

mapfile -t modules <hack/modules.txt
for module in "${modules[@]}" hack/tools; do
    (cd "$module" && go mod tidy -diff) || { echo "$module/go.mod is not tidy: run \`go mod tidy\` there" >&2; exit 1; }
done

hack/lint.sh
