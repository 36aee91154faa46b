# shellcheck shell=bash
# For the build scripts of this folder, run in the root of the tree.

# shellcheck source=tools/lib/build.sh
source tools/lib/build.sh

# How a peer's driver is compiled, as what it links was.
# shellcheck disable=SC2034  # used by those that source this file
DRIVER=("${CXX:-g++}" -std=c++20 -O2 -DNDEBUG -Wall -Wextra -I. -Iring/include)

# Makes build/ and sets LOOP: rondo-bench's measuring loop without the library, as an archive.
build_loop() {
  mkdir -p build
  run_bazel build //tests/lab:peer_loop_archive
  # shellcheck disable=SC2034
  LOOP=$(bazel_bin)/tests/lab/peers/libbench.a
}
