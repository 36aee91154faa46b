#!/usr/bin/env bash
# Long runs that check every value and that memory stays flat. Tags: slow, soak.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
bazel_test --test_tag_filters=soak --test_timeout=3600 //...
