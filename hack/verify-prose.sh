#!/usr/bin/env bash
# Fails if a document has one of the words of hack/words.txt outside of code, and says what to write instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# Prints each paragraph, item and row as one line with the prefix FILE:LINE:, without code and targets of links.
# shellcheck disable=SC2016 # the $ is awk's
git ls-files -z --cached --others --exclude-standard '*.md' | xargs -0 awk '
    function flush() { if (text != "") print where text; text = "" }
    FNR == 1 { flush(); fenced = 0 }
    /^ *```/ { flush(); fenced = !fenced; next }
    fenced || /^    / || /^$/ { flush(); next }
    /^ *([-|#]|[0-9]+\.) ?/ { flush() }
    { if (text == "") where = FILENAME ":" FNR ": "; sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0 }
    END { flush() }' | sed -E 's/`[^`]*`/`…`/g; s/\]\([^)]*\)/]/g' >"$tmp/prose"

status=0
while IFS=$'\t' read -r word instead; do
    [[ $word && $word != \#* ]] || continue
    while IFS= read -r found; do
        status=1
        word_found=$(grep -oP -- "$word" <<<"$found" | head -n 1)
        echo "${found%%: *}: instead of \"$word_found\" write: $instead" >&2
    done < <(grep -P -- "$word" "$tmp/prose" || true)
done <hack/words.txt
exit "$status"
