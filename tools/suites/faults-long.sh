#!/usr/bin/env bash
# The fault tests that take minutes: many seeds, many crashes. Tags: slow, faults-long.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" iproute2
bazel_test --test_tag_filters=faults-long --test_timeout=3600 //...
