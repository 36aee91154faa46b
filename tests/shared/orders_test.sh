#!/bin/sh
# The stress of links, streams and boards is clean under the thread sanitizer, and each of their orderings is needed:
# without one, the sanitizer reports a race (exit code 66).
stress=$1
# history_size: clang's runtime reports no race whose first access it cannot show any more.
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 history_size=7"
"$stress" --weaken=none || { echo "the orderings of rings and boards do not suffice"; exit 1; }
for ordering in link_publish_last link_observe link_free link_reuse stream_publish stream_publish_last stream_observe \
  stream_free stream_reuse board_publish board_publish_last board_observe board_arrive board_see_arrival board_leave \
  board_see_access; do
  "$stress" --weaken=$ordering > /dev/null 2>&1
  code=$?
  [ $code -eq 66 ] || { echo "weakened $ordering: exit code $code, and a race was expected"; exit 1; }
done
