#!/usr/bin/env bash
# Source this with the flags of `playground up`: it starts a cluster, which ends with the script, and a kubectl for it.
# $dir is a folder that is removed with the cluster.
dir=$(mktemp -d)
: >"$dir/log"
export PLAYGROUND_DIR=$dir/p KUBECONFIG=$dir/p/kubeconfig
bin/playground up "$@" >"$dir/log" 2>&1 &
playground=$!
trap 'kill $playground 2>/dev/null || true; wait $playground || true; rm -rf "$dir"' EXIT
deadline=$((SECONDS + 180))
until grep -q '^ready:' "$dir/log"; do
    if ((SECONDS > deadline)) || ! kill -0 $playground 2>/dev/null; then
        cat "$dir/log" >&2
        exit 1
    fi
    sleep 0.2
done
kubectl() { bin/playground kubectl "$@"; }
