#!/usr/bin/env bash
# What tools/install.sh lays down serves programs outside the tree.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" pkg-config cmake make
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
check "pip and CMake compile what Bazel does" python3 -B tests/install/units_test.py bazel
check "tools/install.sh" tools/install.sh "$prefix"
tests/install/install_test.sh "$prefix" || [[ $? == "$CHECKS_FAILED" ]]
