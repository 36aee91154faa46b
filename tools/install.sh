#!/usr/bin/env bash
# Builds Rondo and lays it down for other programs: headers, librondo.so and .a, pkg-config and CMake files, rondo-run
# and rondo-bench.
#   tools/install.sh PREFIX        for example /usr/local or $HOME/rondo
set -euo pipefail
if (($# != 1)) || [[ $1 == -* ]]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
source tools/lib/build.sh

# "NAME = "value"" of tools/bazel/version.bzl
version_value() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" tools/bazel/version.bzl; }

# Fills in the @NAMES@ of a template.
fill_in() {
  sed -e "s/@VERSION@/$version/g" -e "s/@SONAME@/$soname/g" "tools/install/$1" >"$2"
  chmod 644 "$2"
}

install_headers() {
  rm -rf "$prefix/include/rondo"
  install -D -m 644 -t "$prefix/include/rondo" ring/include/rondo/*.h
}

install_libraries() {
  mkdir -p "$prefix/lib"
  # Removed first: a program that runs on the old library keeps it.
  rm -f "$prefix"/lib/librondo.{a,so}*
  install -m 644 "$bin/ring/whole/librondo.a" "$prefix/lib/librondo.a"
  install -m 755 "$bin/ring/librondo.so" "$prefix/lib/librondo.so.$version"
  ln -s "librondo.so.$version" "$prefix/lib/$soname"
  ln -s "$soname" "$prefix/lib/librondo.so"
}

install_descriptions() {
  mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/rondo"
  fill_in rondo.pc.in "$prefix/lib/pkgconfig/rondo.pc"
  fill_in rondo-static.pc.in "$prefix/lib/pkgconfig/rondo-static.pc"
  fill_in rondo-config.cmake.in "$prefix/lib/cmake/rondo/rondo-config.cmake"
  fill_in rondo-config-version.cmake.in "$prefix/lib/cmake/rondo/rondo-config-version.cmake"
}

install_programs() {
  mkdir -p "$prefix/bin"
  install -m 755 "$bin/tools/rondo-run" "$bin/bench/rondo-bench" "$prefix/bin"
}

need_packages "${BUILD_PACKAGES[@]}"
run_bazel build //ring:librondo.so //ring:whole/librondo.a //bench:rondo-bench //tools:rondo-run
bin=$(bazel_bin)
version=$(version_value RONDO_VERSION)
soname=$(version_value RONDO_SONAME)

install_headers
install_libraries
install_descriptions
install_programs
echo "Rondo $version is under $prefix"
echo "  pkg-config: PKG_CONFIG_PATH=$prefix/lib/pkgconfig   packages: rondo, rondo-static"
echo "  CMake: CMAKE_PREFIX_PATH=$prefix   find_package(rondo), targets: rondo::rondo, rondo::rondo-static"
