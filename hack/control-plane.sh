#!/usr/bin/env bash
# Builds kube-apiserver and kube-controller-manager of a version of Kubernetes, such as v1.34.4, in
# bin/kubernetes/VERSION/control-plane. All their modules have the versions of Kubernetes' own go.mod.
# The first build of a version takes about 5 minutes on 2 cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:?usage: hack/control-plane.sh vMAJOR.MINOR.PATCH}
dir=bin/kubernetes/$version
mkdir -p "$dir"
cp hack/playground/cmd/control-plane/main.go "$dir/"
cd "$dir"
export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off

if [[ ! -e go.sum ]]; then
    printf 'module control-plane\n' >go.mod
    kubernetes=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    {
        sed -e 's|^module .*|module control-plane|' "$kubernetes/go.mod"
        # Kubernetes publishes the modules in its own tree, too: those of 1.34.4 are v0.34.4.
        sed -nE "s|^\s*(k8s.io/[^ ]*) v0\.0\.0( .*)?$|replace \1 => \1 v0.${version#v1.}|p" "$kubernetes/go.mod"
    } >go.mod
    go mod edit -require="k8s.io/kubernetes@$version"
    install -m 644 "$kubernetes/go.sum" go.sum
fi
ldflags=$(../../../hack/playground/ldflags.sh "$version")
go build -v -buildvcs=false -ldflags "$ldflags" -o control-plane . 2>&1 | ../../../hack/playground/progress.sh . >&2
