#!/usr/bin/env bash
# Builds build/gloo_bench, the peer gloo of tests/lab/measure.sh --compare and --bars. Needs Debian's libgloo-dev.
set -euo pipefail
cd "$(dirname "$0")/../../.."
if [ ! -e /usr/include/gloo/allreduce.h ]; then
  echo "build_gloo.sh: Gloo is not installed: apt-get install libgloo-dev" >&2
  exit 1
fi
# shellcheck source=tests/lab/peers/common.sh
source tests/lab/peers/common.sh
build_loop
# -rdynamic: libgloo's calls of socket() reach the driver's, which sets the congestion control.
# shellcheck disable=SC2086
"${DRIVER[@]}" tests/lab/peers/gloo_bench.cc -o build/gloo_bench.new \
  -rdynamic -pthread "$LOOP" -lgloo -ldl
mv build/gloo_bench.new build/gloo_bench
echo "built build/gloo_bench"
