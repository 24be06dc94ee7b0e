#!/usr/bin/env bash
# Puts Debian's prometheus and promtool into bin/. If they are not installed, it unpacks them there instead of
# installing them: the package would start a server that listens on all addresses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p bin
tools=(prometheus promtool)
[[ -x bin/prometheus && -x bin/promtool ]] && exit 0
if command -v "${tools[@]}" >/dev/null; then
    for tool in "${tools[@]}"; do ln -sf "$(command -v "$tool")" "bin/$tool"; done
    exit 0
fi

command -v apt-get dpkg-deb >/dev/null || { echo "please install first: prometheus" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
((EUID)) || hack/apt-update.sh
(cd "$folder" && apt-get -o APT::Sandbox::User=root download prometheus)
dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xC bin --strip-components=3 ./usr/bin/prometheus ./usr/bin/promtool
