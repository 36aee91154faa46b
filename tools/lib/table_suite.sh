#!/usr/bin/env bash
# table_suite.sh NAME: runs a suite of tools/suites/table.
set -euo pipefail
source tools/lib/suite.sh

# iproute2 and python3: for tests in network namespaces, and of scripts.
need_packages "${BUILD_PACKAGES[@]}" iproute2 python3
IFS='|' read -r _ words _ < <(grep "^$1 *|" tools/suites/table)
read -ra words <<<"$words"
bazel_test "${words[@]}"
