#!/usr/bin/env bash
# Makes the image of the sources in the current directory, which are those of a commit: an OCI layout and its tarball in a
# folder, beside the binaries and the licenses that are in it. ARCH is for one platform only.
#   hack/image.sh VERSION NAME:TAG FOLDER [COMMIT]
# The same commit gives the same image, wherever and whenever it is built with the same version of Go.
set -euo pipefail
hack=$(realpath "$(dirname "${BASH_SOURCE[0]}")")

version=$1 ref=$2 out=$3 commit=${4:-HEAD}
mkdir -p "$out"
out=$(realpath "$out")
platforms=()
for arch in ${ARCH:-amd64 arm64}; do
    "$hack/binary.sh" "$version" . "$out/local-service-controller_linux_$arch"
    platforms+=("linux_$arch")
done
echo 'collecting the licenses of everything that is linked' >&2
"$hack/licenses.sh" . ./cmd/kubectl-localservice >"$out/THIRD_PARTY_LICENSES"
cp LICENSE "$out"
"$hack/go-build.sh" bin/make-image hack/image .
"$hack/../bin/make-image" -version "$version" -ref "$ref" -revision "$(git -C "$hack" rev-parse "$commit")" \
    -created "$(git -C "$hack" log -1 --format=%cI "$commit")" -out "$out" "${platforms[@]}"
