#!/usr/bin/env bash
# The fault tests that take minutes or 10 GiB: many seeds, many crashes, large buffers. Tags: slow, faults-long.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" iproute2
# Those that need gigabytes are not in //... (manual).
bazel_test --test_tag_filters=faults-long --test_timeout=3600 //... //tests/engine:big_test //tests/kernels:combine_large_test
