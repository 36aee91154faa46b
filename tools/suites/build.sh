#!/usr/bin/env bash
# Everything builds with g++, warnings being errors.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}"
check "bazel build //..." run_bazel build --keep_going //...
