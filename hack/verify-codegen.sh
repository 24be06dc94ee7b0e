#!/usr/bin/env bash
# Fails if a generated file differs from what hack/update-codegen.sh generates, or should not exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p bin
tar --exclude=./.git --exclude=./bin --exclude=./hack/playground -cf - . | tar -xf - -C "$copy"
ln -s "$PWD/bin" "$copy/bin" # the built generators
rm -rf "$copy/pkg/generated/"{clientset,informers,listers,applyconfiguration}
"$copy/hack/update-codegen.sh" >"$copy/log" 2>&1 || { cat "$copy/log" >&2; exit 1; }

for path in pkg artifacts/examples/crd.yaml hack/api-violations.txt; do
    diff -ur "$path" "$copy/$path" || { echo "generated files are stale: run \`make generate\`" >&2; exit 1; }
done
