#!/usr/bin/env bash
# Runs golangci-lint on all modules, as .golangci.yml configures it. The API linter is built into it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/go-build.sh bin/golangci-lint hack/lint sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter \
    -ldflags '-s -w'
status=0
mapfile -t modules <hack/modules.txt
for module in "${modules[@]}"; do
    (cd "$module" && CGO_ENABLED=0 "$OLDPWD/bin/golangci-lint" run --config "$OLDPWD/.golangci.yml" ./...) || status=1
done
exit "$status"
