#!/usr/bin/env bash
# Measures Rondo's bus bandwidth. Installs what is missing of Debian's packages (as root), builds, and runs rondo-bench.
#   tools/bench.sh [rondo-bench options]    none: all_reduce, 4 ranks over TCP, 8 B to 64 MiB; --help lists them
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh

need_packages "${BUILD_PACKAGES[@]}"
# The build's own words are of interest only if it fails.
log=$(mktemp)
echo "Building rondo-bench ..." >&2
if ! run_bazel build //bench:rondo-bench >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"

(($#)) || set -- --ranks 4 --sizes 8,64,1K,16K,64K,256K,1M,16M,64M
bin=$(bazel_bin)
exec "$bin/bench/rondo-bench" "$@"
