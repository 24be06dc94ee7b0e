#!/usr/bin/env bash
# Writes a tarball with the files of all images: agnhost, and programs of this machine that the tests call by name, some
# with flags that busybox does not know.
#   hack/conformance/layer.sh AGNHOST PORTER OUT
# PORTER is the folder with the certificate of agnhost's command porter.
set -euo pipefail

agnhost=$1 porter=$2 out=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
path() { command -v "$1" || { echo "$1 is missing: run hack/packages.sh --conformance first" >&2; exit 1; }; }

install -m 755 "$agnhost" "$root/agnhost"
ln -s agnhost "$root/agnhost-2"
install -m 755 "$porter"/localhost.{crt,key} "$root"
# With their libraries. sh is not busybox's, which would prefer its own programs to these.
for program in sh:sh curl:curl dig:dig nc:nc.openbsd getent:getent; do
    source=$(path "${program#*:}")
    install -D -m 755 "$source" "$root/bin/${program%%:*}"
    while IFS= read -r library; do
        install -D -m 755 "$library" "$root$library"
    done < <(ldd "$source" | grep -oP '/\S+(?= \(0x)')
done
# Everything else that a shell script needs is busybox, which has to be linked statically.
busybox=$(path busybox)
install -m 755 "$busybox" "$root/bin/busybox"
for command in $("$busybox" --list); do
    [[ -e $root/bin/$command ]] || ln -s busybox "$root/bin/$command"
done
mkdir "$root"/{etc,www}
printf '%s\n' root:x:0:0:root:/:/bin/sh nobody:x:65534:65534:nobody:/:/bin/sh >"$root/etc/passwd"
printf '%s\n' root:x:0: nogroup:x:65534: >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
echo '<title>Welcome to nginx!</title>' >"$root/www/index.html"
install -d -m 1777 "$root"/{data,tmp,uploads,var/tmp}
(cd "$root" && tar --owner=0 --group=0 --numeric-owner --sort=name -c -- *) >"$out"
