#!/usr/bin/env bash
# Builds Rondo and copies what other programs need: headers, librondo.so and .a, pkg-config and CMake files, rondo-run,
# rondo-bench, rondo-view, rondo-trace, rondo-top, rondo-doctor, the libraries for programs of MPI and the license.
# Installs no package; says which ones are missing. Without Bazel 4 to 7 it builds with CMake.
#   [DESTDIR=DIR] [LIBDIR=lib] tools/install.sh PREFIX
# PREFIX   where the files are used, for example /usr/local or $HOME/rondo
# LIBDIR   the libraries' folder under PREFIX, for example lib64 or lib/x86_64-linux-gnu
# DESTDIR  put in front of PREFIX when files are copied, for packages
set -euo pipefail
if (($# != 1)) || [[ $1 == -* ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
prefix=$(realpath -m "$1")
libdir=${LIBDIR:-lib}
libdir=${libdir#"$prefix"/}
libdir=${libdir%/}
if [[ $libdir == /* || /$libdir/ == */../* || -z $libdir ]]; then
  echo "LIBDIR=$LIBDIR is not a folder under PREFIX ($prefix): give a path such as lib64" >&2
  exit 2
fi
root=${DESTDIR:+$(realpath -m "$DESTDIR")}$prefix # where the files are copied to
cd "$(dirname "$0")/.."
source tools/lib/build.sh

# From the two places that say them: the public header, and the link's options.
version=$(sed -n 's/^#define RONDO_VERSION "\(.*\)"$/\1/p' ring/include/rondo/rondo.h)
sonames() { sed -n "s/^RONDO_$1 = \"\(.*\)\"$/\1/p" tools/bazel/version.bzl; }
soname=$(sonames SONAME) c_soname=$(sonames C_SONAME)

# Fills in the @NAMES@ of a template. UP: from the file's folder to the prefix.
fill_in() {
  local up
  up=$(realpath -ms --relative-to="/$(dirname "$2")" /)
  install -d "$root/$(dirname "$2")"
  sed -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" -e "s|@C_SONAME@|$c_soname|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@UP@|$up|g" \
    "tools/install/$1" >"$root/$2"
  chmod 644 "$root/$2"
}

install_headers() {
  rm -rf "$root/include/rondo"
  install -D -m 644 -t "$root/include/rondo" ring/include/rondo/*.h
}

install_libraries() {
  # Removed first: a program that runs on the old library keeps it.
  rm -f "$root/$libdir"/librondo.{a,so}* "$root/$libdir"/librondo_c.so*
  install -D -m 644 "$bin/ring/whole/librondo.a" "$root/$libdir/librondo.a"
  install_shared librondo.so "$soname"
  install_shared librondo_c.so "$c_soname" # for programs in C and of other C++ libraries (clang's libc++)
}

# install_shared NAME SONAME
install_shared() {
  install -D -m 755 "$bin/ring/$1" "$root/$libdir/$1.$version"
  ln -s "$1.$version" "$root/$libdir/$2"
  ln -s "$2" "$root/$libdir/$1"
}

# By these programs of MPI run on Rondo; rondo-run --mpi finds them here.
install_mpi() {
  rm -rf "$root/$libdir/rondo/mpi"
  install -D -m 755 -t "$root/$libdir/rondo/mpi" "$bin"/mpi/{librondo_mpi.so,libmpi.so.12,libmpich.so.12,libmpi.so.40,libmpi_cxx.so.40,libmpi_abi.so.1,librondo_mpitrampoline.so}
}

# Programs of NCCL that load it run on Rondo (docs/gpu.md).
install_nccl() {
  rm -rf "$root/$libdir/rondo/nccl"
  install -D -m 755 -t "$root/$libdir/rondo/nccl" "$bin/nccl/libnccl.so.2"
}

install_descriptions() {
  fill_in rondo.pc.in "$libdir/pkgconfig/rondo.pc"
  fill_in rondo-c.pc.in "$libdir/pkgconfig/rondo-c.pc"
  fill_in rondo-static.pc.in "$libdir/pkgconfig/rondo-static.pc"
  fill_in rondo-config.cmake.in "$libdir/cmake/rondo/rondo-config.cmake"
  fill_in rondo-config-version.cmake.in "$libdir/cmake/rondo/rondo-config-version.cmake"
}

say_where() {
  local cmake_path
  echo "Rondo $version is under $root"
  echo "  pkg-config: PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig   packages: rondo, rondo-static, rondo-c"
  # CMake looks below lib and lib/ARCH everywhere, below lib64 on some systems only (not on Debian).
  case $libdir in
    lib | lib/*) cmake_path=CMAKE_PREFIX_PATH=$prefix ;;
    *) cmake_path=rondo_DIR=$prefix/$libdir/cmake/rondo ;;
  esac
  echo "  CMake: $cmake_path   find_package(rondo), targets: rondo::rondo, rondo::rondo-static, rondo::rondo-c"
}

# Without a Bazel that takes this tree: all but the libraries for programs of MPI and of NCCL.
install_by_cmake() {
  echo "Building with CMake, without the libraries for programs of MPI and NCCL, which need Bazel 4 to 7"
  check_packages "${NATIVE_PACKAGES[@]}" cmake make python3 || return 1
  cmake -S . -B build/cmake -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR="$libdir" &&
    cmake --build build/cmake -j "$(nproc)" && DESTDIR=${DESTDIR:+$(realpath -m "$DESTDIR")} cmake --install build/cmake
}

# Where Bazel is too new, not all packages that it needs are to be had.
if ! command -v bazel >/dev/null || ! check_bazel; then
  install_by_cmake
  say_where
  exit
fi
check_packages "${BUILD_PACKAGES[@]}"
run_bazel build //ring:librondo.so //ring:librondo_c.so //ring:whole/librondo.a //mpi:libraries //nccl:libnccl.so.2 //bench:rondo-bench //tools:rondo-run //tools/doctor:rondo-doctor //tools/view:rondo-view
bin=$(bazel_bin)

install_headers
install_libraries
install_mpi
install_nccl
install_descriptions
install -D -m 755 -t "$root/bin" "$bin/tools/rondo-run" "$bin/bench/rondo-bench" "$bin/tools/view/rondo-view" \
  "$bin/tools/doctor/rondo-doctor"
install -D -m 644 -t "$root/share/rondo/trace" tools/trace/*.py
install -D -m 644 -t "$root/share/rondo/top" tools/top/*.py
for name in trace top; do
  # shellcheck disable=SC2016  # the program's own
  printf '#!/bin/sh\nexec python3 "$(dirname "$(readlink -f "$0")")/../share/rondo/%s/rondo_%s.py" "$@"\n' "$name" "$name" >"$root/bin/rondo-$name"
  chmod 755 "$root/bin/rondo-$name"
done
install -D -m 644 -t "$root/share/doc/rondo" LICENSE
say_where
