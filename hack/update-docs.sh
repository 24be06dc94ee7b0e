#!/usr/bin/env bash
# Generates the pages of docs/reference that follow from the code, in that folder or in the one given as argument.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-docs/reference}
tmp=$(mktemp -d) # so that a page is replaced only when it is complete
trap 'rm -rf "$tmp"' EXIT

api=pkg/apis/localservice/v1alpha1
go run ./hack/apidoc artifacts/examples/crd.yaml "$api"/{conditions,well_known}.go >"$tmp"/api.md
CGO_ENABLED=0 go run ./hack/metrics-reference >"$tmp"/metrics.md

CGO_ENABLED=0 go build -o "$tmp/controller" .
# A table from the output of -help: each flag has a line, and the next one has its meaning, behind a tab.
{
    cat <<'PAGE'
# Flags

<!-- Generated from local-service-controller -help by hack/update-docs.sh: do not edit. -->

The flags of `local-service-controller`, with one dash or two. With Helm they go into the value `flags`, without dashes.
Everything is logged that an operator must know, and what is changed; with `-v=4` also decisions.

| flag | default | meaning |
| --- | --- | --- |
PAGE
    "$tmp/controller" -help 2>&1 | awk '
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
} >"$tmp"/flags.md

CGO_ENABLED=0 go build -o "$tmp/plugin" ./cmd/kubectl-localservice
# A table from the help of the plugin: each reason has a line in the first list.
{
    cat <<'PAGE'
# Reasons of the kubectl plugin

<!-- Generated from kubectl localservice nodes -h by hack/update-docs.sh: do not edit. -->

What may be wrong with a name, the most specific first: a name has the first reason that applies. They are in the field
`reason` of `kubectl localservice nodes -o json`. The table of `kubectl localservice nodes` shows the cause in words.

| reason | meaning |
| --- | --- |
PAGE
    "$tmp/plugin" nodes -h | awk '
        /^  [A-Z][A-Za-z]+ / { reason = $1; $1 = ""; print "| `" reason "` |" $0 " |"; found = 1; next }
        found { exit }'
} >"$tmp"/plugin-reasons.md
mv "$tmp"/*.md "$out"
