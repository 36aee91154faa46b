#!/usr/bin/env bash
# GPU buffers over a device without a GPU: calls, failures, and the full matrix of 1 to 8 ranks. Tags of that: slow, device.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
bazel_test --test_tag_filters= --test_timeout=3600 //tests/device/...
