#!/usr/bin/env bash
# Writes all files of a release into a folder, which it replaces: hack/release.sh VERSION REPOSITORY FOLDER. It neither
# signs nor pushes anything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1 repository=$2 dist=$3
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
    { echo "$version is not a version such as v0.1.0: run \`make release VERSION=v0.1.0\`" >&2; exit 1; }
rm -rf "$dist"
hack/image.sh "$version" "$repository:$version" "$dist"
rm -r "$dist/local-service-controller" # the layout, which is also in the tarball
make --no-print-directory chart

created=$(git log -1 --format=%cI)
# The plugin's scripts, with which kubectl completes its arguments and runs `kubectl create localservice`, are not for
# Windows.
plugin=cmd/kubectl-localservice
for system in linux_amd64 linux_arm64 darwin_amd64 darwin_arm64 windows_amd64; do
    [[ $system != darwin_* ]] || hack/binary.sh "$version" . "$dist/local-service-controller_$system"
    folder=$dist/$system/ program=kubectl-localservice
    mkdir "$folder"
    cp "$dist"/{LICENSE,THIRD_PARTY_LICENSES} "$folder"
    if [[ $system == windows_* ]]; then
        program=kubectl-localservice.exe
    else
        cp $plugin/kubectl_complete-localservice $plugin/kubectl-create-localservice "$folder"
    fi
    hack/binary.sh "$version" ./$plugin "$dist/kubectl-localservice_$system"
    mv "$dist/kubectl-localservice_$system" "$folder/$program"
    tar --sort=name --format=ustar --mtime="$created" --owner=0 --group=0 --numeric-owner --mode=go=rX -C "$folder" -c . |
        gzip -n >"$dist/kubectl-localservice_$system.tar.gz"
done

echo 'writing bills of materials' >&2
# They name the hash of the program that wrote them.
GOFLAGS='' hack/go-build.sh bin/cyclonedx-gomod hack/release github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod \
    -trimpath -ldflags '-s -w -buildid='
for binary in "$dist"/local-service-controller_*_* "$dist"/*/kubectl-localservice{,.exe}; do
    bill=$(basename "$binary")
    [[ $bill != kubectl-* ]] || bill=kubectl-localservice_$(basename "$(dirname "$binary")")
    bin/cyclonedx-gomod bin -json -std -noserial -notimestamp -version "$version" -output "$dist/$bill.cdx.json" "$binary"
done
rm -r "$dist"/*_*/ "$dist/LICENSE"

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
for archive in "$dist"/kubectl-localservice_*.tar.gz; do
    platform=${archive##*/kubectl-localservice_}
    platform=${platform%%.*}
    krew+=(-e "s/SHA256_$platform$/$(sha256sum "$archive" | cut -d ' ' -f 1)/")
done
sed "${krew[@]}" artifacts/krew/localservice.yaml >"$dist/localservice.yaml"

cd "$dist"
sums=$(sha256sum -- *)
echo "$sums" >checksums.txt
