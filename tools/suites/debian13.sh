#!/usr/bin/env bash
# Debian 13 in a root made by debootstrap: `pip install ./python`, tools/install.sh, programs of both, libc++, tools/bench.sh.
# RONDO_DEBIAN_SUITES: suites of tools/test.sh to run there besides; "unit" takes half an hour.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

installs() { in_root "cd /rondo && tools/install.sh /usr/local && ldconfig"; }

check "a root of Debian 13" make_root trixie "${BUILD_PACKAGES[@]}" python3-venv python3-setuptools python3-wheel python3-numpy clang libc++-dev
finish_checks # without a root nothing else can pass
check "pip install ./python" pip_install
check "its first program" python_program
check "tools/install.sh" installs
check "a C++ program" cpp_program
check "a program of libc++ by rondo-c" libcxx_program
check "tools/bench.sh" in_root "cd /rondo && tools/bench.sh"
for suite in ${RONDO_DEBIAN_SUITES:-}; do check "tools/test.sh $suite" in_root "cd /rondo && tools/test.sh $suite"; done
finish_checks
