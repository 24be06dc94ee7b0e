#!/usr/bin/env bash
# Generates everything that follows from pkg/apis/localservice/v1alpha1: deep copies, OpenAPI, apply configurations,
# clientset, listers, informers, and the CustomResourceDefinition.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOBIN="$PWD/bin/codegen"
TMPDIR=$(mktemp -d) # kube_codegen.sh leaves files in it.
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
module=$(go list -m)
boilerplate=$PWD/hack/boilerplate.go.txt
go mod download k8s.io/code-generator # On a fresh machine it has no directory yet.
codegen=$(go list -m -f '{{.Dir}}' k8s.io/code-generator)
# shellcheck source=/dev/null
source "$codegen/kube_codegen.sh"

kube::codegen::gen_helpers --boilerplate "$boilerplate" pkg/apis
kube::codegen::gen_openapi --boilerplate "$boilerplate" \
    --output-dir pkg/generated/openapi --output-pkg "$module/pkg/generated/openapi" \
    --extra-pkgs k8s.io/apimachinery/pkg/util/intstr \
    --report-filename hack/api-violations.txt ${UPDATE_API_VIOLATIONS:+--update-report} pkg/apis

schema=$TMPDIR/schema
go run ./hack/models-schema >"$schema"
kube::codegen::gen_client --boilerplate "$boilerplate" --with-watch \
    --with-applyconfig --applyconfig-openapi-schema "$schema" \
    --output-dir pkg/generated --output-pkg "$module/pkg/generated" pkg/apis

echo "Generating the CustomResourceDefinition"
mkdir -p bin/codegen/crd
go tool -modfile=hack/tools/go.mod controller-gen crd:headerFile=/dev/null paths=./pkg/apis/... output:crd:dir=bin/codegen/crd
{
    echo "# The LocalService API. Generated from pkg/apis/localservice/v1alpha1 by hack/update-codegen.sh: do not edit."
    go run ./hack/finish-crd <bin/codegen/crd/localservice.dev_localservices.yaml
} >artifacts/examples/crd.yaml
