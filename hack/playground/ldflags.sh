#!/usr/bin/env bash
# Prints the linker's flags for programs of a version of Kubernetes, such as v1.37.2. kubectl and the API server compare
# these numbers. There is no build date: it would have everything linked again every time.
set -euo pipefail

version=$1
IFS=. read -r major minor _ <<<"${version#v}"
ldflags="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$minor -X $pkg.gitTreeState=clean"
done
echo "$ldflags"
