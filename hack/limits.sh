#!/usr/bin/env bash
# Raises a limit of Linux that `make test` needs, until the next boot: its clusters watch files with inotify, of which a
# user may have 128 instances on many machines. A cluster of three nodes has 38.
set -euo pipefail

limit=/proc/sys/fs/inotify/max_user_instances enough=1024
[[ -e $limit ]] && (($(<"$limit") < enough)) || exit 0
if [[ -w $limit ]] && echo "$enough" >"$limit"; then
    echo "fs.inotify.max_user_instances is now $enough"
else
    echo "if a test lacks inotify instances: sudo sysctl -w fs.inotify.max_user_instances=$enough" >&2
fi
