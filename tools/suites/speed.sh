#!/usr/bin/env bash
# The bench runs its main job and gives right results; no speed is judged (suite bars does).
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

run_bazel build //bench:rondo-bench
bench=$(bazel_bin)/bench/rondo-bench
check "rondo-bench, all_reduce, 4 ranks, 8 B to 64 MiB" timeout 300 \
  "$bench" --ranks 4 --sizes 8,1K,64K,1M,64M -n 5 --no-limit --json "$results/main.json"
check "all_reduce: nothing wrong" tools/check_speed.py "$results/main.json"
check "rondo-bench, every collective, 3 ranks" timeout 300 \
  "$bench" --ranks 3 --collective all --sizes 8,64K,1M -n 5 --no-limit --json "$results/all.json"
check "every collective: nothing wrong" tools/check_speed.py "$results/all.json"
calibrates() {
  local transport
  for transport in tcp shm; do
    "$bench" --ranks 3 --transport "$transport" --calibrate "$results/model" || return 1
  done
  grep -q '^loopback.alpha_us=' "$results/model" && grep -q '^memory.alpha_us=' "$results/model" || return 1
  RONDO_COST_MODEL=$results/model "$bench" --ranks 3 --sizes 8,64K -n 5 --no-limit
}
check "rondo-bench --calibrate writes a model that ranks load" calibrates
finish_checks
