#!/usr/bin/env bash
# bar.sh LEAST RONDO-BENCH ...: runs it with --device cuda, and fails if it gives wrong results or if an all_reduce moves
# less than LEAST of what copies of the same run do.
set -uo pipefail
least=$1
shift
out=$("$@") || { echo "$out"; exit 1; }
echo "$out"
shares=$(sed -n 's/^# all_reduce of .*: \([0-9.]*\) of copies.*/\1/p' <<<"$out")
[ -n "$shares" ] || { echo "no share of copies in the output"; exit 1; }
for share in $shares; do
  awk -v share="$share" -v least="$least" 'BEGIN { exit share >= least ? 0 : 1 }' || { echo "below the bar of $least"; exit 1; }
done
