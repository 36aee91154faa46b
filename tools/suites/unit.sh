#!/usr/bin/env bash
# Every test that is quick enough for each change: all but those tagged slow, and those of the suite faults.
set -euo pipefail
source tools/lib/suite.sh

# iproute2 and python3: for tests in network namespaces, and of scripts.
need_packages "${BUILD_PACKAGES[@]}" iproute2 python3
bazel_test --test_tag_filters=-slow,-faults //...
