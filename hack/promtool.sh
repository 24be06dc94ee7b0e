#!/usr/bin/env bash
# Puts Debian's promtool into bin/. If it is not installed, it unpacks it there instead of installing it: the package
# would start a server that listens on all addresses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p bin
[[ ! -x bin/promtool ]] || exit 0
if installed=$(command -v promtool); then
    ln -sf "$installed" bin/promtool
    exit 0
fi

command -v apt-get dpkg-deb >/dev/null || { echo "please install first: prometheus" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
((EUID)) || hack/apt-update.sh
(cd "$folder" && apt-get -o APT::Sandbox::User=root download prometheus)
dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xC bin --strip-components=3 ./usr/bin/promtool
