#!/usr/bin/env bash
# Builds what `make test-conformance` runs, in bin/conformance/: a program with Kubernetes' own tests of workloads and
# networks, ginkgo, which runs that in several processes, and a tarball of the images that the tests need. The first
# build takes about 4 minutes on 2 cores after that of the playground, which is of the same version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bin=../../bin/conformance
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
ldflags=$(../playground/ldflags.sh "$version")
mkdir -p "$bin"
export CGO_ENABLED=0 GOGC=${GOGC:-400} # see hack/playground/build.sh

echo "building bin/conformance" >&2
packages=(./images ./suite tool)
go build -v -buildvcs=false -ldflags "$ldflags" -o "$bin/" "${packages[@]}" 2>&1 |
    ../playground/progress.sh "${packages[@]}" >&2
echo "linking bin/conformance/suite.test" >&2
go test -c -buildvcs=false -ldflags "$ldflags" -o "$bin/suite.test" ./suite
kubernetes=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
./layer.sh "$bin/agnhost" "$kubernetes/test/images/agnhost/porter" "$bin/layer.tar"
"$bin/images" "$bin/layer.tar" >"$bin/images.tar.new"
mv "$bin/images.tar.new" "$bin/images.tar"
rm "$bin/layer.tar"
