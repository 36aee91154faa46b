#!/usr/bin/env bash
# The tests under the address, undefined-behavior and leak sanitizers, then under the thread sanitizer.
set -euo pipefail
source tools/lib/suite.sh

# Tests only: some build themselves with a sanitizer of their own.
need_packages "${BUILD_PACKAGES[@]}" iproute2
bazel_test --config=asan --build_tests_only --test_tag_filters=-slow,-no-asan //...

# GCC 12's thread sanitizer knows the memory layout of at most 28 random bits (Debian's default); where the kernel
# uses more, the tests run without randomisation.
tsan_flags=()
random_bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)
if ((random_bits > 28)); then
  check "setarch -R, for vm.mmap_rnd_bits=$random_bits" setarch "$(uname -m)" -R true
  tsan_flags+=(--run_under="/usr/bin/setarch $(uname -m) -R")
fi
bazel_test --config=tsan "${tsan_flags[@]}" --build_tests_only --test_tag_filters=-slow,-no-tsan //...
