#!/usr/bin/env bash
# Measures Rondo. Installs what is missing of Debian's packages (as root), builds, and runs rondo-bench.
#   tools/bench.sh [rondo-bench options]  none: all_reduce over TCP, a rank a core (2 to 8), 8 B to 64 MiB; --help lists them
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh

need_packages "${BUILD_PACKAGES[@]}"
build_here //bench:rondo-bench
cores=$(nproc)
ranks=$((cores < 2 ? 2 : cores > 8 ? 8 : cores))
(($#)) || set -- --ranks $ranks --transport tcp --sizes 8,64,1K,16K,64K,256K,1M,16M,64M
exec "$(bazel_bin)/bench/rondo-bench" "$@"
