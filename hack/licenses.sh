#!/usr/bin/env bash
# Prints the licenses and notices of everything that is linked into programs, on any platform of a release:
#   hack/licenses.sh [PACKAGE...]
# It fails if something has no license that go-licenses knows.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset GOOS GOARCH
export CGO_ENABLED=0
go build -C "$(dirname "${BASH_SOURCE[0]}")/release" -o "$tmp/go-licenses" github.com/google/go-licenses/v2
mkdir "$tmp/all"
for system in linux darwin windows; do
    GOOS=$system "$tmp/go-licenses" save "$@" --ignore "$(go list -m)" --save_path "$tmp/$system" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; exit 1; }
    cp -r "$tmp/$system/." "$tmp/all"
done
cd "$tmp/all"
mkdir go
cp "$(go env GOROOT)/LICENSE" go
echo "The programs of local-service-controller contain this software of others, under these licenses."
# Each text once, below the names of the files that have it.
find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum | awk '
    { names[$1] = names[$1] $2 "\n"; if (!($1 in file)) { file[$1] = $2; order[++n] = $1 } }
    END {
        line = sprintf("%80s", ""); gsub(/ /, "-", line)
        for (i = 1; i <= n; i++) {
            printf "\n%s\n%s%s\n\n", line, names[order[i]], line
            while ((getline text <file[order[i]]) > 0) print text
        }
    }'
