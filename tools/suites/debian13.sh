#!/usr/bin/env bash
# Debian 13: `pip install ./python`, `tools/install.sh`, programs of both, one of libc++, in a root made by debootstrap.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

installs() { in_root "cd /rondo && tools/install.sh /usr/local && ldconfig"; }
cpp_program() {
  in_root "cd /tmp && g++ -std=c++20 /rondo/tests/install/sum.cc -o sum \$(pkg-config --cflags --libs rondo)" &&
    two_ranks "rondo-run -n 2 /tmp/sum"
}
libcxx_program() {
  in_root "cd /tmp && clang++ -std=c++20 -stdlib=libc++ /rondo/tests/install/c_api.cc -o of_libcxx \$(pkg-config --cflags --libs rondo-c)" &&
    two_ranks "rondo-run -n 2 /tmp/of_libcxx"
}

check "a root of Debian 13" make_root trixie "${BUILD_PACKAGES[@]}" python3-venv python3-setuptools python3-wheel python3-numpy clang libc++-dev
check "pip install ./python" pip_install
check "its first program" python_program
check "tools/install.sh" installs
check "a C++ program" cpp_program
check "a program of libc++ by rondo-c" libcxx_program
finish_checks
