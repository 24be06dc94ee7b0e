#!/usr/bin/env bash
# Builds bin/playground and, in bin/playground.d/, the programs that its nodes run. The first build compiles all of
# Kubernetes (about 5 minutes on 2 cores, 4.5 GB of Go caches); a build that finds nothing changed takes two seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [[ $(uname -s) != Linux ]]; then
  echo "the playground needs Linux: its nodes are namespaces of the machine it runs on" >&2
  exit 1
fi
command -v go >/dev/null || { echo "go is not installed: see https://go.dev/doc/install" >&2; exit 1; }

bin=../../bin
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
# kubectl and the API server compare these numbers. No build date: it would have everything linked again every time.
ldflags="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$minor -X $pkg.gitTreeState=clean"
done

# Reads what `go build -v` prints: the import path of a package about to be compiled, or a message. Every few seconds,
# says how far it has come.
progress() {
  local line total='' compiled=0 shown=0 next=0 status
  while true; do
    status=0
    IFS= read -r -t 5 line || status=$?
    if ((status > 128)); then line=''; elif ((status > 0)); then break; fi
    case $line in
      '') ;;
      'go: downloading '*) ((SECONDS < next)) || { echo "downloading ${line#go: downloading }"; next=$((SECONDS + 5)); } ;;
      *[[:space:]]*) printf '%s\n' "$line" ;;
      *) ((++compiled)) ;;
    esac
    ((compiled > 0 && SECONDS >= next)) || continue
    : "${total:=$(go list -deps . ./cmd/pause tool 2>/dev/null | wc -l)}"
    # Nothing new in the meantime: that is the linker, or one of the big packages.
    if ((compiled > shown)); then echo "compiled $compiled of up to $total packages"; else echo "still compiling or linking"; fi
    shown=$compiled next=$((SECONDS + 5))
  done
}

mkdir -p "$bin/playground.d"
export CGO_ENABLED=0
build() { go build -v -buildvcs=false -ldflags "$ldflags" "$@" 2>&1 | progress >&2; }
build -o "$bin/playground" .
build -o "$bin/playground.d/" ./cmd/pause tool
install -m 755 runc.sh "$bin/playground.d/runc"
