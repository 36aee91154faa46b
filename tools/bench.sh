#!/usr/bin/env bash
# Measures Rondo. Installs what is missing of Debian's packages (as root), builds, and runs rondo-bench.
#   tools/bench.sh [rondo-bench options]  none: all_reduce over TCP, a rank a core (2 to 8), 8 B to 64 MiB; --help lists them
#   tools/bench.sh --beside BINARY        1 if this build is slower than another rondo-bench
#   tools/bench.sh --compare PEERS        beside other libraries (bench/peers/build_*.sh makes them)
#   tools/bench.sh --bars                 1 if one of the project's promises about speed is missed; --keep FOLDER --minutes N:
#                                         in parts, a call after the other
# --beside x --help lists the options of these. They want a quiet machine; --beside takes half a minute, the others tens
# of minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh

need_packages "${BUILD_PACKAGES[@]}"
compare() {
  build_here //bench:rondo-bench //tools:rondo-run
  exec python3 -B bench/compare --binary "$(bazel_bin)/bench/rondo-bench" "$@"
}

case ${1:-} in
  --beside | --compare | --bars) compare "$@" ;;
esac
build_here //bench:rondo-bench
cores=$(nproc)
ranks=$((cores < 2 ? 2 : cores > 8 ? 8 : cores))
(($#)) || set -- --ranks $ranks --transport tcp --sizes 8,64,1K,16K,64K,256K,1M,16M,64M
exec "$(bazel_bin)/bench/rondo-bench" "$@"
