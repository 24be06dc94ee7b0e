#!/usr/bin/env bash
# Checks what a machine can check of the documents: words (hack/words.txt says what to write instead), links with their
# anchors, and the addresses of pages that code, alerts and manifests print. It warns of sentences with more than 30
# words, and of too much to read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
complain() { echo "$1" >&2; status=1; }
warn() { echo "warning: $1" >&2; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mapfile -t files < <(git ls-files --cached --others --exclude-standard)
for i in "${!files[@]}"; do
    [[ -e ${files[i]} ]] || unset 'files[i]' # deleted, and not committed
done
documents=()
for file in "${files[@]}"; do
    [[ $file != *.md ]] || documents+=("$file")
done

# A paragraph, an item or a row becomes a line of prose with the prefix FILE:LINE:, without code and targets of links.
# An anchor is made of a heading as forges do it. A link has its document, a tab, and its target.
# shellcheck disable=SC2016 # the $ is awk's
awk -v prose="$tmp/prose" -v anchors="$tmp/anchors" -v links="$tmp/links" '
    function flush(rest) {
        if (text == "") return
        gsub(/`[^`]*`/, "`…`", text)
        for (rest = text; match(rest, /\]\([^)]*\)/); rest = substr(rest, RSTART + RLENGTH))
            print file "\t" substr(rest, RSTART + 2, RLENGTH - 3) >links
        gsub(/\]\([^)]*\)/, "]", text)
        print where text >prose
        text = ""
    }
    function anchor(heading) {
        heading = tolower(heading)
        gsub(/\]\([^)]*\)/, "", heading); gsub(/[^a-z0-9 _-]/, "", heading); gsub(/ /, "-", heading)
        print FILENAME "#" heading (seen[FILENAME, heading]++ ? "-" seen[FILENAME, heading] - 1 : "") >anchors
    }
    FNR == 1 { flush(); fenced = 0; file = FILENAME }
    /^ *```/ { flush(); fenced = !fenced; next }
    fenced || /^    / || /^$/ { flush(); next }
    /^#+ / { flush(); heading = $0; sub(/^#+ +/, "", heading); anchor(heading) }
    /^ *([-|#]|[0-9]+\.) ?/ { flush() }
    { if (text == "") where = FILENAME ":" FNR ": "; sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0 }
    END { flush() }' "${documents[@]}"

# One look for all words, and one for each only where there is something to complain about.
grep -vE '^(#|$)' hack/words.txt >"$tmp/words"
if grep -P -- "$(cut -f 1 "$tmp/words" | paste -sd '|')" "$tmp/prose" >"$tmp/found"; then
    while IFS=$'\t' read -r word instead; do
        while IFS= read -r found; do
            complain "${found%%: *}: instead of \"$(grep -oP -- "$word" <<<"$found" | head -n 1)\" write: $instead"
        done < <(grep -P -- "$word" "$tmp/found" || true)
    done <"$tmp/words"
fi

# Generated pages have the sentences of the code, and headings and rows of tables are no sentences.
generated='^docs/reference/(api|flags|metrics|plugin-reasons)\.md'
# shellcheck disable=SC2016 # the $ is awk's
long=$(grep -vE "$generated:|^[^ ]+ [|#<]" "$tmp/prose" | awk '
    {
        words = 0; sentence = ""
        for (i = 2; i <= NF; i++) {
            if (i == 2 && $i ~ /^(-|[0-9]+\.)$/) continue
            words++; sentence = sentence " " $i
            if ($i !~ /[.?!][])*_"]*$/ && i < NF) continue
            if (words > 30) print $1 " " words " words:" sentence
            words = 0; sentence = ""
        }
    }')
[[ -z $long ]] || warn $'sentences of more than 30 words\n'"$long"

# One person reads them in an evening: pages, and words of those that nobody generates.
pages=$(find docs -name '*.md' | wc -l)
((pages <= 20)) || warn "docs has $pages pages, at most 20"
words=$(find docs -name '*.md' | grep -vE "$generated" | xargs cat | wc -w)
((words <= 24000)) || warn "docs has $words words, at most 24000: each fact in one place"

declare -A anchors=()
while IFS= read -r anchor; do anchors[$anchor]=1; done <"$tmp/anchors"
# exists returns 0 if there is a page, and the heading in it that an anchor stands for.
exists() { [[ -e ${1%%#*} && ( $1 != *#* || ${anchors[$1]:-} ) ]]; }
while IFS=$'\t' read -r document link; do
    [[ ! $link =~ ^(https?|mailto): ]] || continue
    path=$document$link
    if [[ $link != \#* ]]; then
        path=$link
        [[ $document != */* ]] || path=${document%/*}/$link
        [[ $path != *..* ]] || path=$(realpath -m --relative-to=. -- "$path")
    fi
    exists "$path" || complain "$document: the link to $link leads nowhere"
done < <(sort -u "$tmp/links")

# Everything else that names a page: code, alerts, manifests, templates. In addresses, only those of this repository.
while IFS=: read -r file page; do
    page=${page##*local-service-controller/blob/main/}
    exists "${page%#}" || complain "$file: there is no $page"
done < <(grep -oHP '(?<![\w/.-])(https://github\.com/localservice-dev/local-service-controller/blob/main/|(?=docs/))[\w./-]+\.(md|yml)(#[\w-]*)?' \
    "${files[@]}" 2>/dev/null | sed 's#:https://github.com/localservice-dev/#:#' | sort -u)
exit "$status"
