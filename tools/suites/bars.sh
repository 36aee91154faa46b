#!/usr/bin/env bash
# The project's promises about speed, in the median of 5 interleaved runs beside raw TCP and Gloo; wants a quiet machine.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" libgloo-dev
check "Gloo's driver builds" bench/peers/build_gloo.sh
run_bazel build //bench:rondo-bench
check "rondo-bench --bars" timeout 600 "$(bazel_bin)/bench/rondo-bench" --bars
finish_checks
