#!/bin/sh
# The stress of lanes that meet is clean under the thread sanitizer, and each of their orderings is needed: without one,
# the sanitizer reports a race (exit code 66).
stress=$1
# history_size: clang's runtime reports no race whose first access it cannot show any more.
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 history_size=7"
"$stress" --weaken=none || { echo "the orderings of lanes do not suffice"; exit 1; }
for ordering in acquire release left; do
  "$stress" --weaken=$ordering >/dev/null 2>&1
  code=$?
  [ $code -eq 66 ] || { echo "weakened $ordering: exit code $code, and a race was expected"; exit 1; }
done
