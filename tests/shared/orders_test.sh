#!/bin/sh
# The stress of the shared link and the board is clean under the thread sanitizer, and each of their ten orderings is needed: without
# one, the sanitizer reports a race (exit code 66).
stress=$1
export TSAN_OPTIONS="halt_on_error=1 exitcode=66"
"$stress" --weaken=none || { echo "the orderings of SharedLink and Board do not suffice"; exit 1; }
for ordering in publish observe free reuse board_publish board_observe board_arrive board_see_arrival board_leave board_see_access; do
  "$stress" --weaken=$ordering > /dev/null 2>&1
  code=$?
  [ $code -eq 66 ] || { echo "weakened $ordering: exit code $code, and a race was expected"; exit 1; }
done
