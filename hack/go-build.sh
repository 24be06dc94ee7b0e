#!/usr/bin/env bash
# Builds a program of a module in this repository, and prints the remaining time:
#   hack/go-build.sh PROGRAM FOLDER PACKAGE [FLAG...]
#   hack/go-build.sh bin/external-dns hack/external-dns sigs.k8s.io/external-dns
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=$1 folder=$2 package=$3 root=$PWD
shift 3
export CGO_ENABLED=0 GOGC=${GOGC:-400} # see hack/playground/build.sh
echo "building $program" >&2
cd "$folder"
go build -v "$@" -o "$root/$program" "$package" 2>&1 | "$root/hack/playground/progress.sh" "$package" >&2
