#!/usr/bin/env bash
# Builds bin/helm3 and bin/helm4 from their modules: two minutes for each the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Helm 3 takes the cluster for one of v1.20, where it may not ask, unless it is linked with the version of its libraries.
minor=$(cd hack/chart && go list -m -f '{{.Version}}' k8s.io/client-go | cut -d . -f 2)
ldflags='-s -w'
for package in chartutil lint/rules; do
    ldflags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$minor"
done
hack/go-build.sh bin/helm3 hack/chart helm.sh/helm/v3/cmd/helm -ldflags "$ldflags"
hack/go-build.sh bin/helm4 hack/chart helm.sh/helm/v4/cmd/helm -ldflags '-s -w'
