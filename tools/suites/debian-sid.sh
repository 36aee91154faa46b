#!/usr/bin/env bash
# Debian sid, its newest compiler, fmt and OpenSSL: `pip install ./python`, in a root made by debootstrap; Bazel is refused.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

# Its Bazel wants modules of a registry.
says_which_bazel() { in_root "cd /rondo && tools/install.sh /usr/local 2>&1 | grep \"this tree builds with Bazel 4 to 6\""; }

check "a root of Debian sid" make_root sid "${BUILD_PACKAGES[@]/binutils-gold/}" python3-venv python3-setuptools python3-wheel python3-numpy
finish_checks # without a root nothing else can pass
check "pip install ./python" pip_install
check "its first program" python_program
check "tools/install.sh says which Bazel it needs" says_which_bazel
finish_checks
