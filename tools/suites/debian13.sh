#!/usr/bin/env bash
# Debian 13 in a root made by debootstrap: `pip install ./python`, tools/install.sh, programs of both, libc++, tools/bench.sh.
# RONDO_DEBIAN_SUITES: suites of tools/test.sh to run there besides; "unit" takes half an hour.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

builds_on trixie "Debian 13"
check "tools/bench.sh" in_root "cd /rondo && tools/bench.sh"
for suite in ${RONDO_DEBIAN_SUITES:-}; do check "tools/test.sh $suite" in_root "cd /rondo && tools/test.sh $suite"; done
finish_checks
