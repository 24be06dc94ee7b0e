#!/usr/bin/env bash
# Writes all files of a release into a folder, which it replaces: hack/release.sh VERSION REPOSITORY FOLDER. It neither
# signs nor pushes anything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1 repository=$2 dist=$3
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
    echo "$version is not a version such as v0.1.0: run \`make release VERSION=v0.1.0\`" >&2
    exit 1
fi
make --no-print-directory chart
rm -rf "$dist"
mkdir -p "$dist"

created=$(git log -1 --format=%cI)
hack/go-build.sh bin/make-image hack/image .
bin/make-image -release -version "$version" -ref "$repository:$version" -out "$dist" \
    -revision "$(git rev-parse HEAD)" -created "$created"
rm -r "$dist/local-service-controller" # the layout, which is also in the tarball

echo 'packing manifests, the chart and the manifest for Krew' >&2
released() {
    sed -i -e "s#localhost/local-service-controller:dev#$repository:$version#" \
        -e "s#localhost/local-service-controller#$repository#" "$@"
}
cp artifacts/deploy/{install,local-service-controller,hostnames,guard,metrics-secure}.yaml artifacts/examples/{crd,example,quickstart}.yaml \
    artifacts/chart/local-service-controller/files/rules.yaml "$dist"
cp artifacts/dashboards/local-service-controller.json "$dist/dashboard.json"
{ cat artifacts/admission/node-label.yaml; echo ---; cat artifacts/admission/node-label-guard.yaml; } \
    >"$dist/admission.yaml"
chart=$(mktemp -d)
trap 'rm -rf "$chart"' EXIT
cp -a artifacts/chart/local-service-controller "$chart"
released "$dist"/{install,local-service-controller}.yaml "$chart"/local-service-controller/{Chart.yaml,README.md,values.yaml}
find "$chart" -exec touch --date="$created" {} + # Only the times of the files would make packages differ.
bin/helm4 package "$chart/local-service-controller" --destination "$dist" \
    --version "${version#v}" --app-version "$version"

krew=(-e '/^#/d' -e "s/VERSION/$version/")
for archive in "$dist"/kubectl-localservice_*.{tar.gz,zip}; do
    platform=${archive##*/kubectl-localservice_}
    platform=${platform%%.*}
    krew+=(-e "s/SHA256_$platform$/$(sha256sum "$archive" | cut -d ' ' -f 1)/")
done
sed "${krew[@]}" artifacts/krew/localservice.yaml >"$dist/localservice.yaml"

cd "$dist"
sums=$(sha256sum -- *)
echo "$sums" >checksums.txt
