#!/usr/bin/env bash
# Has a real API server check every manifest, without keeping any but the CustomResourceDefinition and namespaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=$(mktemp -d)
: >"$dir/log"
bin/playground up --control-plane-only --dir "$dir/p" >"$dir/log" 2>&1 &
playground=$!
trap 'kill $playground 2>/dev/null || true; wait $playground || true; rm -rf "$dir"' EXIT
deadline=$((SECONDS + 120))
until grep -q '^ready:' "$dir/log"; do
    if ((SECONDS > deadline)) || ! kill -0 $playground 2>/dev/null; then
        cat "$dir/log" >&2
        exit 1
    fi
    sleep 0.2
done
export KUBECONFIG=$dir/p/kubeconfig
kubectl() { bin/playground kubectl "$@"; }

kubectl create -f artifacts/examples/crd.yaml
kubectl wait --for=condition=Established crd/localservices.localservice.dev
kubectl create namespace --save-config local-service-system
while IFS= read -r manifest; do
    kubectl apply --dry-run=server --validate=strict -f "$manifest"
done < <(find artifacts -name '*.yaml' ! -name crd.yaml ! -name kustomization.yaml ! -path '*/chart/*' | sort)
while IFS= read -r kustomization; do
    kubectl apply --dry-run=server --validate=strict -k "$(dirname "$kustomization")"
done < <(find artifacts -name kustomization.yaml | sort)
