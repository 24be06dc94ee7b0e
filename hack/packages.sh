#!/usr/bin/env bash
# Installs the missing Debian packages that the tests on real nodes and in a browser need, or with --demo only those that
# the demo needs; with --verify only what `make verify` looks for; with --arm64 also the emulator; with --conformance also
# what Kubernetes' own tests call. Without permission to install them, it prints the command that does.
set -euo pipefail

[[ $(uname -s) == Linux ]] || { echo "this needs Linux: the nodes are namespaces of the machine" >&2; exit 1; }

# Each command, and the package that contains it.
needed=(make:make curl:curl nft:nftables crun:crun nsenter:util-linux)
[[ ${1:-} == --demo ]] || needed+=(gcc:gcc git:git chromium:chromium openssl:openssl
    busybox:busybox-static dig:bind9-dnsutils)
[[ ${1:-} != --verify ]] || needed=(git:git shellcheck:shellcheck)
[[ ${1:-} != --conformance ]] || needed+=(nc.openbsd:netcat-openbsd)
[[ ${1:-} != --arm64 ]] || needed+=(qemu-aarch64-static:qemu-user-static)

PATH=$PATH:/usr/sbin:/sbin
missing=()
for entry in "${needed[@]}"; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
# The race detector's runtime needs the C library's headers; Debian packages them separately from the compiler.
[[ ${1:-} == --demo || ${1:-} == --verify || -e /usr/include/stdlib.h ]] || missing+=(libc6-dev)
((${#missing[@]})) || exit 0

line="apt-get install -y ${missing[*]}"
command -v apt-get >/dev/null || { echo "please install first: ${missing[*]}" >&2; exit 1; }
((EUID == 0)) || { echo "please run first: sudo $line" >&2; exit 1; }
echo "$line"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
"${BASH_SOURCE[0]%/*}/apt-update.sh"
apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
