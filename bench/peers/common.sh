# shellcheck shell=sh
# For the build scripts of this folder, run in the root of the tree: rondo-bench's measuring loop without the library,
# as build/peers/libbench.a. Only what is older than its source is compiled.

CXXFLAGS="-std=c++20 -O2 -DNDEBUG -DFMT_HEADER_ONLY -Wall -Wextra -I."

build_common() {
  mkdir -p build/peers/objects
  objects=""
  newest_header=$(find bench ring/base kernels -name '*.h' -newer build/peers/libbench.a 2>/dev/null | head -n 1)
  [ -e build/peers/libbench.a ] || newest_header=all
  for source in ring/base/error.cc ring/base/home_core.cc bench/bars.cc bench/benchmark.cc bench/buffers.cc \
    bench/cases.cc bench/children.cc bench/contents.cc bench/element.cc bench/group.cc bench/json.cc bench/limit.cc \
    bench/machine.cc bench/measure.cc bench/options.cc bench/output.cc bench/pattern.cc bench/raw_pump.cc \
    bench/raw_rank.cc bench/raw_ring.cc bench/raw_setting.cc bench/reference.cc bench/row.cc bench/session.cc \
    bench/sizes.cc bench/statistics.cc bench/tensors.cc bench/whole_file.cc; do
    object=build/peers/objects/$(basename "$source" .cc).o
    objects="$objects $object"
    if [ -n "$newest_header" ] || [ ! -e "$object" ] || [ -n "$(find "$source" -newer "$object")" ]; then
      # shellcheck disable=SC2086
      ${CXX:-g++} $CXXFLAGS -c "$source" -o "$object"
    fi
  done
  rm -f build/peers/libbench.a
  # shellcheck disable=SC2086
  ar rcs build/peers/libbench.a $objects
}
