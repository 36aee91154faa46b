#!/usr/bin/env bash
# Every test that is quick enough for each change: all but those tagged slow.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
bazel_test --test_tag_filters=-slow //...
