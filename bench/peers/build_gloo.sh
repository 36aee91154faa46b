#!/bin/sh
# Builds build/gloo_bench, the peer that rondo-bench --bars compares with. Needs Debian's libgloo-dev.
set -eu
cd "$(dirname "$0")/../.."
if [ ! -e /usr/include/gloo/allreduce.h ]; then
  echo "build_gloo.sh: Gloo is not installed: apt-get install libgloo-dev" >&2
  exit 1
fi
mkdir -p build
sources="bench/peers/gloo_bench.cc ring/base/error.cc"
for name in benchmark sizes statistics element reference pattern contents buffers measure children output json row \
  machine raw_ring raw_rank raw_pump raw_setting limit; do
  sources="$sources bench/$name.cc"
done
# -rdynamic: libgloo's calls of socket() reach the driver's, which sets the congestion control.
# shellcheck disable=SC2086
${CXX:-g++} -std=c++20 -O2 -DNDEBUG -DFMT_HEADER_ONLY -Wall -Wextra -I. $sources -o build/gloo_bench.new \
  -rdynamic -pthread -lgloo -ldl
mv build/gloo_bench.new build/gloo_bench
echo "built build/gloo_bench"
