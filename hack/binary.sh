#!/usr/bin/env bash
# Builds a program of a release. The file's name ends with its platform:
#   hack/binary.sh VERSION PACKAGE FILE_OS_ARCH
# It builds what is in the current directory. Nothing of the machine gets into the binary: no paths, no settings of the
# user's, no state of a work tree.
set -euo pipefail

version=$1 package=$2 file=$3
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$ ]] ||
    { echo "$version is not a version such as v0.1.0: with others, the controller does not start" >&2; exit 1; }
IFS=_ read -r _ GOOS GOARCH <<<"${file##*/}"
echo "building ${file##*/}" >&2 # each takes up to a minute
export GOOS GOARCH CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOFLAGS='' GOEXPERIMENT='' GOFIPS140=off GOWORK=off
go build -trimpath -buildvcs=false -mod=readonly \
    -ldflags "-s -w -buildid= -X k8s.io/component-base/version.gitVersion=$version" -o "$file" "$package"
