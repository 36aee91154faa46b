#!/usr/bin/env bash
# Everything builds with clang, warnings being errors, and the tests pass.
set -euo pipefail
source tools/lib/suite.sh

# One test is always under the thread sanitizer, whose library clang has in a package of its own.
need_packages "${BUILD_PACKAGES[@]}" iproute2 clang libclang-rt-14-dev
check "bazel build --config=clang //..." run_bazel build --config=clang --keep_going //...
bazel_test --config=clang --test_tag_filters=-slow //...
