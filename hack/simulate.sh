#!/usr/bin/env bash
# Plays random histories for a time ($FOR), one process for each core, and prints how much of the controllers' code they
# have reached: a history can find a mistake only in code that it reaches. $SEED is that of the first history.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p bin/simulate
rm -rf bin/simulate/*
CGO_ENABLED=0 go test -c -covermode=set -coverpkg=.,./internal/... -o bin/simulate/histories .
processes=()
for ((i = 0; i < $(nproc); i++)); do
    # With one thread, simultaneous actions happen in nearly the same order each time.
    seed=${SEED:+$((SEED + i))}
    SEED=$seed SIMULATE=${FOR:-1m} GOMAXPROCS=1 GOGC=off GOMEMLIMIT=1GiB bin/simulate/histories \
      -test.run '^TestSimulation$' -test.v -test.timeout 0 -test.coverprofile "bin/simulate/$i.cover" >"bin/simulate/$i.log" 2>&1 &
    processes+=($!)
done
failed=0
for i in "${!processes[@]}"; do
    wait "${processes[$i]}" || { failed=1; cat "bin/simulate/$i.log"; }
done
grep -h ' histories in ' bin/simulate/*.log
((failed == 0)) || exit 1
echo "statements that were reached:"
for package in . internal/cache internal/plan internal/reconcile internal/status internal/writer; do
    awk -v dir="github.com/localservice-dev/local-service-controller/$package" -v name="$package" '
        BEGIN { sub(/\/\.$/, "", dir) }
        { path = $1; sub(/\/[^\/]*$/, "", path) }
        path == dir { all[$1] = $2; if ($3 > 0) hit[$1] = 1 }
        END { for (b in all) { n += all[b]; if (b in hit) h += all[b] } printf "  %-20s %3d%%\n", name, 100 * h / n }
    ' bin/simulate/*.cover
done
