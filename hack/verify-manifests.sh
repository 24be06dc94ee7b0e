#!/usr/bin/env bash
# Checks every manifest with a real API server, which stores only the CustomResourceDefinition and namespaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=hack/cluster.sh
source hack/cluster.sh --control-plane-only

kubectl create -f artifacts/examples/crd.yaml
kubectl wait --for=condition=Established crd/localservices.localservice.dev
kubectl create namespace --save-config local-service-system
kubectl create namespace --save-config hostnames
while IFS= read -r manifest; do
    kubectl apply --dry-run=server --validate=strict -f "$manifest"
done < <(find artifacts -name '*.yaml' ! -name crd.yaml ! -name kustomization.yaml ! -name 'patch-*' \
    ! -path '*/chart/*' ! -path '*/krew/*' ! -path '*/kube-state-metrics/*' ! -path '*/prometheus/*' | sort)
while IFS= read -r kustomization; do
    kubectl apply --dry-run=server --validate=strict -k "$(dirname "$kustomization")"
done < <(find artifacts -name kustomization.yaml | sort)
