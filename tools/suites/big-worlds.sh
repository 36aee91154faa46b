#!/usr/bin/env bash
# Worlds of 256 ranks twenty times and of 512, on one host: minutes. Tags: slow, big-worlds.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
bazel_test --test_tag_filters=big-worlds --test_timeout=3600 //...
