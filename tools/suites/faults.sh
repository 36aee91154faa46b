#!/usr/bin/env bash
# What the world does to ranks: killed, stopped, cut off, damaged (docs/faults.md). Tag: faults; faults-long has the rest.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" iproute2
bazel_test --test_tag_filters=faults,-slow //...
