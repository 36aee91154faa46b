#!/usr/bin/env bash
# Wire formats and sparse all_reduce: codecs, the proof of plans, random calls of worlds 1 to 8.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
bazel_test --test_tag_filters=compression //tests/kernels/... //tests/plan/... //tests/engine/...
