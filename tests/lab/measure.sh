#!/usr/bin/env bash
# Compares what rondo-bench measures. Installs what is missing of Debian's packages (as root), and builds.
#   tests/lab/measure.sh --beside BINARY   1 if this build is slower than another rondo-bench; half a minute
#   tests/lab/measure.sh --compare PEERS   beside other libraries (tests/lab/peers/build_*.sh makes them)
#   tests/lab/measure.sh --bars            1 if one of the project's promises about speed is missed; --keep FOLDER keeps its answers
# --beside x --help lists the options. They want a quiet machine, --compare and --bars for tens of minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tools/lib/build.sh

need_packages "${BUILD_PACKAGES[@]}"
build_here //bench:rondo-bench //tests/lab:limits //tools:rondo-run
exec python3 -B tests/lab/compare --binary "$(bazel_bin)/bench/rondo-bench" "$@"
