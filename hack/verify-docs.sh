#!/usr/bin/env bash
# Fails if a document names a file, a make target or a flag that does not exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
complain() { echo "$1" >&2; status=1; }

mapfile -t documents < <(git ls-files --cached --others --exclude-standard '*.md')
for document in "${documents[@]}"; do
    folder=$(dirname "$document")
    # Links to files, without those to the web and to headings of the same document.
    # shellcheck disable=SC2016 # the backquotes are those of Markdown
    while IFS= read -r target; do
        [[ -e $folder/${target%%#*} ]] || complain "$document: the link to $target leads nowhere"
    done < <(sed 's/`[^`]*`//g' "$document" | grep -oP '\]\(\K(?!https?:|#)[^)]+(?=\))' || true)
    # Paths in code: those that begin with a folder at the top.
    # shellcheck disable=SC2016 # the backquotes are those of Markdown
    while IFS= read -r path; do
        [[ -e $path || -e $folder/$path ]] || git check-ignore -q "$path" || complain "$document: there is no $path"
    done < <(grep -oP '`\K(artifacts|cmd|hack|internal|pkg|test|\.ci)/[A-Za-z0-9_./-]*(?=`)' "$document" || true)
    # shellcheck disable=SC2016
    while IFS= read -r target; do
        grep -q "^$target:" Makefile || complain "$document: there is no make target $target"
    done < <(grep -oP '(`|\$ )make \K[a-z0-9-]+' "$document" | sort -u || true)
done

exit "$status"
