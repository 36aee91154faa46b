#!/usr/bin/env bash
# Debian sid, its newest compiler, fmt, OpenSSL and Bazel (7): `pip install ./python` and tools/install.sh in a root made
# by debootstrap.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

installs() { in_root "cd /rondo && tools/install.sh /usr/local && ldconfig"; }

check "a root of Debian sid" make_root sid "${BUILD_PACKAGES[@]}" python3-venv python3-setuptools python3-wheel python3-numpy clang libc++-dev
finish_checks # without a root nothing else can pass
check "pip install ./python" pip_install
check "its first program" python_program
check "tools/install.sh" installs
check "a C++ program" cpp_program
check "a program of libc++ by rondo-c" libcxx_program
finish_checks
