#!/usr/bin/env bash
# Networks of a limited rate, made of network namespaces: nearly all of the rate must be bus bandwidth. Wants root.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" iproute2
bazel_test --test_tag_filters=rates //...
