#!/usr/bin/env bash
# The bench runs its main job and every collective with right results; no speed is judged (suite bars does).
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
run_bazel build //bench:rondo-bench
bench=$(bazel_bin)/bench/rondo-bench

# Its exit code says whether a result was wrong.
check "all_reduce, 4 ranks, 8 B to 64 MiB" timeout 300 "$bench" --ranks 4 --sizes 8,1K,64K,1M,64M -n 5
# No rank complains while rank 0 measures raw TCP for seconds, and no line has more than 100 columns.
beside_raw_tcp() {
  local lines
  lines=$(timeout 300 "$bench" --transport tcp --sizes 8,1M,64M -n 5 2>&1) || { echo "$lines" && return 1; }
  echo "$lines"
  ! grep -E '^rondo\[|^.{101}' <<<"$lines"
}
check "over TCP, beside raw TCP" beside_raw_tcp
check "every collective, 3 ranks" timeout 300 "$bench" --ranks 3 --collective all --sizes 8,64K,1M -n 5
check "the same, asynchronous" timeout 300 "$bench" --ranks 3 --collective all --sizes 8,64K -n 5 -z 0
for blocking in 1 0; do
  check "ping-pong, 4 ranks, -z $blocking" timeout 300 "$bench" --ranks 4 --collective pingpong --sizes 8,64K,1M -n 5 -z $blocking
done
finish_checks
