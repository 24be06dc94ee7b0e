#!/usr/bin/env bash
# Fails if a file differs from what hack/update-chart.sh generates, or if the chart does not render what it should.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p bin
cp -a artifacts hack "$copy"
ln -s "$PWD/bin" "$copy/bin"
"$copy/hack/update-chart.sh"
diff -ur artifacts "$copy/artifacts" || { echo "generated files are stale: run \`make generate\`" >&2; exit 1; }

cd hack/chart
CGO_ENABLED=0 go test -vet=off ./...
