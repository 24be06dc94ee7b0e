#!/usr/bin/env bash
# Generates the pages of docs/reference that follow from the code, in that folder or in the one that is named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-docs/reference}

api=pkg/apis/localservice/v1alpha1
go run ./hack/apidoc artifacts/examples/crd.yaml "$api"/{conditions,types}.go >"$out"/api.md
CGO_ENABLED=0 go run ./hack/metrics-reference >"$out"/metrics.md

# A table of what -help says: each flag has a line, and its meaning is in the next one, behind a tab.
{
    cat <<'PAGE'
# Flags

<!-- Generated from local-service-controller -help by hack/update-docs.sh: do not edit. -->

The flags of `local-service-controller`, with one dash or two. With Helm they go into the value `flags`, without dashes.
Everything is logged that an operator must know, with `-v=2` also changes made, and with `-v=4` decisions.

| flag | default | meaning |
| --- | --- | --- |
PAGE
    { CGO_ENABLED=0 go run . -help 2>&1 || true; } | awk '
        /^  -/ { flag = substr($1, 2); value = $2 }
        /^    *\t/ {
            sub(/^ *\t/, ""); default_ = ""
            if (match($0, / \(default .*\)$/)) {
                default_ = "`" substr($0, RSTART + 10, RLENGTH - 11) "`"; gsub(/"/, "", default_)
                $0 = substr($0, 1, RSTART - 1)
            }
            gsub(/\|/, "\\|"); gsub(/</, "\\&lt;")
            print "| `-" flag (value == "" ? "" : "=" toupper(value)) "` | " default_ " | " $0 " |"
        }'
} >"$out"/flags.md
