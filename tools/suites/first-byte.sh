#!/usr/bin/env bash
# A small blocking all_reduce passes through no more functions before its first byte than it did; none over 70 lines.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" binutils python3
run_bazel build --config=first_byte //tests/engine:first_byte
check "functions before the first byte" tests/engine/first_byte.py \
  "$(run_bazel info --config=first_byte bazel-bin)/tests/engine/first_byte" --most shm=22 --most tcp=58
finish_checks
