#!/usr/bin/env bash
# Puts the controller of this work tree into the cluster that kubectl uses, a playground or one of kind, with
# artifacts/deploy/install.yaml; or runs it on this machine:
#   hack/deploy.sh
#   hack/deploy.sh --here [FLAG...]
# Here, it has the service account's permissions, and the API server guards it, as in the cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The playground's uses $KUBECONFIG, too.
kubectl() { if type -P kubectl >/dev/null; then command kubectl "$@"; else bin/playground kubectl "$@"; fi; }
namespace=local-service-system
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

if [[ ${1:-} == --here ]]; then
    sed 's/^  replicas: .*/  replicas: 0/' artifacts/deploy/install.yaml | kubectl apply -f -
    kubectl config view --minify --raw >"$tmp/kubeconfig"
    export KUBECONFIG=$tmp/kubeconfig
    token=$(kubectl create token local-service-controller --namespace "$namespace" --duration=24h)
    kubectl config set-credentials controller --token="$token"
    kubectl config set-context --current --user=controller
    bin/local-service-controller -kubeconfig="$KUBECONFIG" "${@:2}"
    exit
fi

cluster=$(kubectl config view --minify -o 'jsonpath={.clusters[0].name}')
image=localhost/local-service-controller:$(git hash-object bin/local-service-controller)
case $cluster in
    playground) bin/playground load "$image=bin/local-service-controller" ;;
    kind-*)
        GOOS=linux CGO_ENABLED=0 go build -buildvcs=false -ldflags "$LDFLAGS" -o "$tmp/" .
        printf 'FROM scratch\nCOPY local-service-controller /\nUSER 65532\nENTRYPOINT ["/local-service-controller"]\n' \
            >"$tmp/Dockerfile"
        docker build --tag "$image" "$tmp"
        kind load docker-image "$image" --name "${cluster#kind-}"
        ;;
    *)
        echo "$cluster is neither a playground nor a cluster of kind: see docs/install.md" >&2
        exit 1
        ;;
esac
# Each binary has a tag of its own, so that a new one replaces the pods.
sed "s#image: localhost/local-service-controller:dev#image: $image#" artifacts/deploy/install.yaml | kubectl apply -f -
kubectl rollout status deployment/local-service-controller --namespace "$namespace" --timeout=2m
