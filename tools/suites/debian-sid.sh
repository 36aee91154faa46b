#!/usr/bin/env bash
# Debian sid, its newest compiler, fmt and OpenSSL: `pip install ./python` and tools/install.sh in a root made by
# debootstrap. Its Bazel wants modules of a registry, so that CMake builds.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

by_cmake() { in_root "cd /rondo && tools/install.sh /usr/local 2>&1 | tee /tmp/install.log && grep -q \"this tree builds with Bazel 4 to 6\" /tmp/install.log && ldconfig"; }

check "a root of Debian sid" make_root sid "${BUILD_PACKAGES[@]}" cmake make python3-venv python3-setuptools python3-wheel python3-numpy clang libc++-dev
finish_checks # without a root nothing else can pass
check "pip install ./python" pip_install
check "its first program" python_program
check "tools/install.sh, by CMake" by_cmake
check "a C++ program" cpp_program
check "a program of libc++ by rondo-c" libcxx_program
finish_checks
