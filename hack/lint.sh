#!/usr/bin/env bash
# Runs golangci-lint, as .golangci.yml configures it, on everything but what imports all of Kubernetes, which takes some
# minutes: that is what it runs on with --kubernetes. The API linter is built into it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0 GOGC=${GOGC:-400} # see hack/playground/build.sh; it takes up to 5 GB

hack/go-build.sh bin/golangci-lint hack/lint sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter \
    -ldflags '-s -w'
choose=(grep -vE '/hack/(playground|conformance/suite)(/|$)')
[[ ${1:-} != --kubernetes ]] || choose[1]=-E
status=0
while IFS= read -r module; do
    mapfile -t packages < <(go list -C "$module" -f '{{.Dir}}' ./... | "${choose[@]}")
    ((${#packages[@]})) || continue
    (cd "$module" && "$OLDPWD/bin/golangci-lint" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" "${packages[@]}") || status=1
done <hack/modules.txt
exit "$status"
