#!/usr/bin/env bash
# The bench gives right results, and the bars hold in the median of 5 runs.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

run_bazel build //bench:rondo-bench
bin=$(bazel_bin)
bench=$bin/bench/rondo-bench
check "rondo-bench, 4 ranks, 8 B to 64 MiB" timeout 300 "$bench" --ranks 4 -b 8 -e 64M -f 8 -n 5 --json "$results/main.json"
check "rondo-bench, 4 ranks: nothing wrong" tools/check_speed.py "$results/main.json"
for run in 1 2 3 4 5; do
  check "rondo-bench, 2 ranks, run $run" timeout 60 "$bench" --ranks 2 --sizes 64M -n 5 --json "$results/bar-$run.json"
done
check "64 MiB at world 2: 0.85 of the limit" tools/check_speed.py --bytes 64M --share 0.85 "$results"/bar-*.json
