#!/usr/bin/env bash
# Reads what `go build -v PACKAGES` prints in this directory, and prints the remaining time every five seconds:
#   go build -v PACKAGES 2>&1 | progress.sh PACKAGES
# Go's messages pass through.
set -euo pipefail
export CGO_ENABLED=0

declare -A weight=()  # of each package that is to be compiled
left=0 finished=0     # sums of weights
compiled=0 began=0 shown=0 next=0

# weigh sets the weight of each package that is not in Go's build cache. The compiler's time goes by what a package
# imports, directly or not, and by its own files; the factors are fitted to a build of the playground.
weigh() {
  local package imports files
  while read -r package imports files; do
    weight[$package]=$((200 + imports + 60 * files))
    left=$((left + weight[$package]))
  done < <(go list -deps -f '{{if .Stale}}{{.ImportPath}} {{len .Deps}} {{len .GoFiles}}{{end}}' "$@" 2>/dev/null)
  began=$SECONDS
}

# account moves a package from the remaining ones to the finished ones.
account() {
  local cost=${weight[$1]:-0}
  unset "weight[$1]"
  left=$((left - cost)) finished=$((finished + cost)) compiled=$((compiled + 1))
}

time_left() {
  local seconds=$(((SECONDS - began) * left / finished))
  if ((seconds < 90)); then echo "about $seconds seconds left"; return; fi
  echo "about $(((seconds + 30) / 60)) minutes left"
}

report() {
  ((compiled > 0 && SECONDS >= next)) || return 0
  next=$((SECONDS + 5))
  # Nothing new in the meantime: that is the linker, or one of the big packages.
  if ((compiled == shown)); then echo 'still compiling or linking'; return; fi
  shown=$compiled
  # A guess from less would be a bad one.
  if ((finished == 0 || SECONDS - began < 10)); then
    if ((compiled == 1)); then echo 'compiled 1 package'; else echo "compiled $compiled packages"; fi
    return
  fi
  echo "compiled $compiled of $((compiled + ${#weight[@]})) packages, $(time_left)"
}

while true; do
  status=0
  IFS= read -r -t 5 line || status=$?
  if ((status > 128)); then line=''; elif ((status > 0)); then break; fi
  case $line in
    '') ;;
    'go: downloading '*)
      ((SECONDS >= next)) || continue
      echo "${line#go: }"
      next=$((SECONDS + 5))
      ;;
    *[[:space:]]*) printf '%s\n' "$line" ;;
    *)
      account "$line"
      ((compiled != 20)) || weigh "$@" # a build of a few packages is over before they are listed
      ;;
  esac
  report
done
