# shellcheck shell=bash
# For the files of this folder: a command in a clean environment, and what its ranks print.

# clean COMMAND...: what a launcher does not set itself must not be needed. KEPT: assignments that stay.
KEPT=()
clean() { env -i PATH="$PATH" HOME="${HOME:-/root}" "${KEPT[@]}" timeout -s KILL "${LIMIT:-120}" "$@"; }

# prints COUNT PATTERN COMMAND...: it succeeds, and so many of its lines match. Otherwise shows all of them.
prints() {
  local output
  if ! output=$(clean "${@:3}" 2>&1) || (($(grep -cE -- "$2" <<<"$output") != $1)); then
    echo "$output"
    return 1
  fi
}

# sums WORLD COMMAND...: each of WORLD ranks knows the world, and prints the right sum, as examples/all_reduce and
# sum.py do. Ranks that took themselves for a world of one would find their sums right too.
sums() {
  prints "$1" "rank [0-9]+ of $1: (every sum is|sum) $(($1 * ($1 + 1) / 2))$" "${@:2}"
}
