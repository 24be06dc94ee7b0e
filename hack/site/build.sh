#!/usr/bin/env bash
# Builds a site of all documents, with search, into bin/site. It needs Node.js 18 or newer, and npm.
# shellcheck disable=SC2016 # the backquotes are those of Markdown
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v npm >/dev/null || { echo 'npm is missing: install Node.js, on Debian `apt-get install npm`' >&2; exit 1; }

src=bin/site-src
mkdir -p "$src/.vitepress"
find "$src" -mindepth 1 -maxdepth 1 ! -name node_modules ! -name .vitepress -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard -- '*.md' '*.svg' '*.png' |
    tar --null --files-from=- -cf - | tar -xf - -C "$src"
# VitePress leaves out folders whose name begins with a dot.
mv "$src"/.github/*.md "$src"
sed -i 's#](\.\./#](#g' "$src"/{CONTRIBUTING,SECURITY,CODE_OF_CONDUCT}.md
find "$src" -name node_modules -prune -o -name '*.md' -exec sed -i -E 's#\]\(((\.\./)*)\.github/#](\1#g' {} +
cp hack/site/package{,-lock}.json "$src"
cp hack/site/config.mjs "$src/.vitepress"

cd "$src"
cmp -s package-lock.json node_modules/.installed || {
    npm ci --ignore-scripts --no-fund --no-audit
    cp package-lock.json node_modules/.installed
}
npx vitepress build
