#!/usr/bin/env bash
# Fails if a generated page is stale, if README.md does not link to a page, or if a document names something that does
# not exist: a file, a make target, a flag or a metric. hack/verify-prose.sh checks links.
# shellcheck disable=SC2016 # the backquotes are those of Markdown
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
complain() { echo "$1" >&2; status=1; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
hack/update-docs.sh "$tmp"
for page in "$tmp"/*.md; do
    diff -u "docs/reference/${page##*/}" "$page" >&2 || complain 'generated pages are stale: run `make generate`'
done

# prose prints a document without its blocks of code. spans prints the texts between backquotes.
prose() { awk '/^ *```/ { fenced = !fenced; next } !fenced && !/^    /' "$1"; }
spans() { prose "$1" | grep -oP '`\K[^`]+(?=`)' || true; }

mapfile -t documents < <(git ls-files --cached --others --exclude-standard '*.md')
for document in "${documents[@]}"; do
    folder=$(dirname "$document")
    # Paths: those that begin with a top-level folder.
    while IFS= read -r path; do
        [[ -e $path || -e $folder/$path ]] || git check-ignore -q "$path" || complain "$document: there is no $path"
    done < <(spans "$document" | grep -xP '(artifacts|cmd|docs|hack|internal|pkg|test|\.ci)/[A-Za-z0-9_./-]*' || true)
    while IFS= read -r target; do
        grep -q "^$target:" Makefile || complain "$document: there is no make target $target"
    done < <(grep -oP '(`|\$ |^    )make \K[a-z0-9-]+' "$document" | sort -u || true)
done

for page in docs/*.md docs/reference/*.md; do
    grep -qF "]($page" README.md || complain "README.md does not link to $page"
done

# Flags of the controller have one dash and more than a letter. Those of kubectl and Helm have two dashes, or one letter.
for document in README.md CHANGELOG.md docs/*.md docs/*/*.md; do
    while IFS= read -r flag; do
        grep -q "^| \`-${flag}[=\`]" "$tmp/flags.md" || complain "$document: there is no flag -$flag"
    done < <({
        spans "$document" | grep -oP '^-\K[a-z][a-z-]+' || true
        grep -oP 'bin/local-service-controller\K( -[^ ]+)+' "$document" | grep -oP ' -\K[a-z-]+' || true
    } | sort -u)
done
CGO_ENABLED=0 go build -o "$tmp/plugin" ./cmd/kubectl-localservice
for command in nodes view url create; do "$tmp/plugin" "$command" -h; done >"$tmp/plugin.txt"
while IFS= read -r flag; do
    grep -q -- "--$flag\b" "$tmp/plugin.txt" || complain "docs/plugin.md: there is no flag --$flag"
done < <(spans docs/plugin.md | grep -oP '^--\K[a-z-]+' || true)

# Metrics are our own, or those of libraries. The code has their names, either whole or without the first part.
libraries=$(go list -m -f '{{.Dir}}' k8s.io/component-base)/metrics/prometheus
while IFS=: read -r document metric; do
    name=$(sed -E 's/_(bucket|sum|count)$//' <<<"$metric")
    part=$(sed -E 's/^(localservice|workqueue|rest_client|leader_election)_//' <<<"$name")
    grep -rqE "\"($name|$part)\"" internal/metrics "$libraries" || complain "$document: there is no metric $metric"
done < <(grep -oHP '\b(localservice|workqueue|rest_client|leader_election)_[a-z_]+\b(?!\.go)' "${documents[@]}" | sort -u)
exit "$status"
