#!/usr/bin/env bash
# Programs outside the tree, in C++ and C, built against an installed prefix by pkg-config and by CMake, linked to the
# shared and to the static library, and run by the installed rondo-run.
#   tests/install/install_test.sh PREFIX       after tools/install.sh PREFIX
set -euo pipefail
prefix=$(cd "${1:?usage: install_test.sh PREFIX}" && pwd)
cd "$(dirname "$0")/../.."
source tools/lib/suite.sh
tree=$PWD

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Out of sight of the tree, whose headers must not be found by accident.
cp -r tests/install/. "$work"
cd "$work"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

prints_version() {
  local version
  version=$(sed -n 's/^#define RONDO_VERSION "\(.*\)"$/\1/p' "$prefix/include/rondo/rondo.h")
  [[ $("$prefix/bin/$1" --version) == "$1 $version" ]]
}

# run_pair NAME PROGRAM: two ranks of it give the sum 1 + 2 = 3 on both.
run_pair() {
  local output
  output=$(timeout 60 "$prefix/bin/rondo-run" -n 2 "$2") || return 1
  [[ $(grep -c ' of 2: 3$' <<<"$output") == 2 ]] || {
    echo "$1 printed: $output"
    return 1
  }
}

compile() {
  local language=$1 package=$2 flags
  flags=$(pkg-config --cflags --libs "$package") || return 1
  # Words of flags, on purpose.
  # shellcheck disable=SC2086
  case $language in
    c) gcc -std=c11 -Wall -Wextra -Werror -pedantic sum.c -o "pc_c_$package" $flags ;;
    cxx) g++ -std=c++20 -Wall -Wextra -Werror -pedantic sum.cc -o "pc_cxx_$package" $flags ;;
  esac
}

by_pkg_config() {
  local package language
  for package in rondo rondo-static rondo-c; do
    for language in c cxx; do
      [[ $package/$language != rondo-c/cxx ]] || continue # it has no C++ API
      check "$language compiles by pkg-config, $package" compile "$language" "$package"
      LD_LIBRARY_PATH=$prefix/lib check "$language runs by pkg-config, $package" \
        run_pair "$language" "./pc_${language}_$package"
    done
  done
}

cmake_build() {
  if cmake -S "$1" -B "$2" -DCMAKE_PREFIX_PATH="$prefix" >"$2.log" 2>&1 && cmake --build "$2" --parallel "$(nproc)" >>"$2.log" 2>&1; then
    return 0
  fi
  cat "$2.log"
  return 1
}

by_cmake() {
  local program
  check "CMake builds" cmake_build . cmake-both
  check "CMake builds a project without C++" cmake_build c_only cmake-c
  for program in cmake-both/{cxx,c}_rondo{,-static} cmake-c/c_only_rondo{,-static,-c}; do
    check "$(basename "$program") runs, built by CMake" run_pair "$program" "$program"
  done
}

# Each public header compiles by itself, without any package of ours behind it.
header_alone() {
  local header=$1 language=c++
  [[ $header == */rondo.h || $header == */calls_c.h ]] && language=c
  local standard=c++20
  [[ $language == c ]] && standard=c11
  # shellcheck disable=SC2046
  gcc -x "$language" -std="$standard" -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags rondo) \
    -include "$header" /dev/null && ! grep -nE '#include *[<"](asio|fmt|doctest|CLI|nlohmann)' "$header"
}

# On all cores.
headers() {
  local result header
  export -f header_alone
  # shellcheck disable=SC2016  # expanded by the inner shell
  while read -r result header; do
    record "$result" "${header#"$prefix"/} compiles alone"
  done < <(find "$prefix/include/rondo" -name '*.h' | sort |
    xargs -P "$(nproc)" -n 1 bash -c 'if header_alone "$1" >&2; then echo "pass $1"; else echo "fail $1"; fi' _)
}

# What a compiler says of a program that includes a header, in C++17.
in_cxx17() { "$1" -x c++ -std=c++17 -fsyntax-only -I"$prefix/include" -include "$2" /dev/null 2>&1; }

# One error, and it says what to do.
older_standard_is_refused() {
  local said
  said=$(in_cxx17 "$1" "rondo/$2.h") && return 1
  [[ $(grep -c 'error:' <<<"$said") == 1 && $said == *"needs C++20: compile with -std=c++20"* ]] || {
    echo "$said"
    return 1
  }
}

# A program that calls what the headers have, without exceptions of its own.
without_exceptions() {
  local flags
  flags=$(pkg-config --cflags --libs rondo)
  # shellcheck disable=SC2086
  "$1" -std=c++20 -fno-exceptions -Wall -Wextra -Werror no_exceptions.cc -o "no_exceptions_$1" $flags &&
    LD_LIBRARY_PATH=$prefix/lib run_pair "$1" "./no_exceptions_$1"
}

by_compilers() {
  local compiler header
  for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || { echo "Not for this machine: $compiler" && continue; }
    for header in communicator dist_opt sparse; do
      check "$header.h in C++17 by $compiler: one error that names C++20" older_standard_is_refused "$compiler" "$header"
    done
    check "a program without exceptions by $compiler" without_exceptions "$compiler"
  done
}

# The C++ runtime is inside: a program may have another one. libz, libzstd: of OpenSSL 3.5.
only_c_libraries() {
  ! objdump -p "$prefix/lib/librondo_c.so" | sed -n 's/^ *NEEDED *//p' | grep -vE '^(libm|libc|libpthread|libdl|librt|ld-linux[-a-z0-9]*|libz|libzstd)\.so'
}
only_the_c_api() { ! nm -D --defined-only "$prefix/lib/librondo_c.so" | grep -E '^[0-9a-f]+ [A-Zuvw] ' | grep -vE ' T rondo_[a-z_]+$'; }

# clang's libc++ throws by another runtime than librondo.so, in which exceptions of that would end the program.
of_libcxx() {
  local flags
  flags=$(pkg-config --cflags --libs rondo-c)
  # shellcheck disable=SC2086
  clang++ -std=c++20 -stdlib=libc++ c_api.cc -o of_libcxx $flags && LD_LIBRARY_PATH=$prefix/lib run_pair libc++ ./of_libcxx
}

# Symbols that the shared library shows (capitals; u, v, w: unique and weak ones) and should not.
foreign_symbols() {
  nm -DC --defined-only "$prefix/lib/librondo.so" | grep -E '^[0-9a-f]+ [A-Zuvw] ' |
    sed -E 's/@@RONDO_[0-9.]+$//; / A RONDO_[0-9.]+$/d' |
    grep -vE '^[0-9a-f]+ . ((typeinfo (name )?for |vtable for )?rondo::|rondo_[a-z_]+$)'
}

only_the_api() { ! foreign_symbols; }

# The libraries of the C and C++ runtimes, and no other.
only_system_libraries() {
  ! objdump -p "$prefix/lib/librondo.so" | sed -n 's/^ *NEEDED *//p' |
    grep -vE '^(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|librt|ld-linux[-a-z0-9]*|libssl|libcrypto)\.so'
}

exceptions_cross() {
  local flags
  flags=$(pkg-config --cflags --libs rondo)
  # shellcheck disable=SC2086
  g++ -std=c++20 mistake.cc -o mistake $flags && LD_LIBRARY_PATH=$prefix/lib ./mistake
}

# A call on a stream fails on both ranks for this reason, and calls on host memory go on.
no_driver() {
  local flags output why="libcuda\.so\.1: .*; install NVIDIA's driver, or give its libcuda\.so\.1 in RONDO_DEVICE_LIBRARY"
  flags=$(pkg-config --cflags --libs rondo)
  # shellcheck disable=SC2086
  g++ -std=c++20 gpu.cc -o gpu $flags || return 1
  output=$(LD_LIBRARY_PATH=$prefix/lib timeout 60 "$prefix/bin/rondo-run" -n 2 ./gpu) || return 1
  [[ $(grep -cE "UNSUPPORTED: .*$why" <<<"$output") == 2 && $(grep -c 'on host memory: 2$' <<<"$output") == 2 ]] || {
    echo "it printed: $output"
    return 1
  }
}

one_version() {
  local flags
  flags=$(pkg-config --cflags --libs rondo-static)
  # shellcheck disable=SC2086
  gcc version.c -o version $flags && [[ $(./version) == "$(pkg-config --modversion rondo)" ]]
}

# No pipe into grep -q: it stops reading at the first match, and pipefail then reports the writer's SIGPIPE.
has_soname() { grep -qE "^ *SONAME *${1//./\\.}\.[0-9.]+\$" <<<"$(objdump -p "$prefix/lib/$1")"; }

# Programs with a kernels/dtype.h of their own.
own_headers_by_pkg_config() {
  local flags
  flags=$(pkg-config --cflags --libs rondo)
  # shellcheck disable=SC2086
  g++ -std=c++20 -Iown_headers own_headers/main.cc -o own $flags && LD_LIBRARY_PATH=$prefix/lib ./own
}
own_headers_by_cmake() { cmake_build own_headers cmake-own && cmake-own/own_headers; }

# A program with compiled fmt and Asio of its own beside librondo.a.
own_packages() {
  local flags
  flags=$(pkg-config --cflags --libs rondo-static)
  # shellcheck disable=SC2086
  g++ -std=c++20 -DASIO_STANDALONE -DASIO_SEPARATE_COMPILATION own_packages.cc "$tree"/tools/bazel/packages/{asio,fmt}.cc \
    -o own_packages $flags && ./own_packages
}

# Global symbols of librondo.a: the API's, and weak ones of the C++ library.
archive_symbols() {
  nm -C --defined-only --extern-only "$prefix/lib/librondo.a" | grep -E '^[0-9a-f]+ ' |
    grep -vE '^[0-9a-f]+ . ((typeinfo (name )?for |vtable for )?rondo::|rondo_[a-z_]+$)' |
    grep -vE '^[0-9a-f]+ [VWu] .*(std::|__gnu_cxx::|DW\.ref\.)'
}
only_the_api_in_the_archive() { ! archive_symbols; }

# The example that needs an MPI, where there is one.
mpi_example() {
  local flags
  flags=$(pkg-config --cflags --libs rondo)
  # shellcheck disable=SC2086
  mpicxx -std=c++20 "$tree/examples/mpi_id.cc" $flags -o mpi_id || return 1
  local output
  output=$(LD_LIBRARY_PATH=$prefix/lib OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    timeout 60 mpirun -n 2 ./mpi_id) && [[ $(grep -c ' of 2: the sum is 3$' <<<"$output") == 2 ]]
}

# For packages: files go below DESTDIR, and find one another from PREFIX on.
staged() {
  local root=$work/stage libdir=lib/x86_64-linux-gnu
  (cd "$tree" && DESTDIR=$root LIBDIR=$libdir tools/install.sh /usr) >stage.log 2>&1 || { cat stage.log; return 1; }
  [[ -f $root/usr/share/doc/rondo/LICENSE && -x $root/usr/bin/rondo-run && ! -e $root/usr/lib/librondo.a ]] || return 1
  local flags
  flags=$(PKG_CONFIG_PATH=$root/usr/$libdir/pkgconfig pkg-config --cflags --libs rondo)
  [[ $flags != *"$work/stage/usr/$libdir"* ]] && { echo "pkg-config says: $flags"; return 1; }
  # shellcheck disable=SC2086
  g++ -std=c++20 sum.cc -o staged $flags && LD_LIBRARY_PATH=$root/usr/$libdir run_pair staged ./staged &&
    prefix=$root/usr cmake_build . cmake-staged && run_pair cmake-staged cmake-staged/cxx_rondo-static
}

# Below lib64 CMake does not look on Debian: what tools/install.sh says finds the package.
lib64() {
  (cd "$tree" && LIBDIR=lib64 tools/install.sh "$work/with-lib64") >lib64.log 2>&1 || { cat lib64.log; return 1; }
  rondo_DIR=$(sed -n 's/.*CMake: rondo_DIR=\([^ ]*\).*/\1/p' lib64.log) prefix=$work/none cmake_build own_headers cmake-lib64 &&
    cmake-lib64/own_headers
}

# The whole prefix under another name still serves.
movable() {
  cp -r "$prefix" "$work/moved"
  grep -q "$work/moved/" <<<"$(PKG_CONFIG_PATH=$work/moved/lib/pkgconfig pkg-config --cflags rondo)" || return 1
  prefix=$work/moved cmake_build . cmake-moved
}

by_pkg_config
by_cmake
headers
by_compilers
check "librondo_c.so shows the C API only" only_the_c_api
check "librondo_c.so needs the C runtime only" only_c_libraries
if clang++ -stdlib=libc++ -x c++ -include string -fsyntax-only /dev/null 2>/dev/null; then
  check "the C API in a program of libc++" of_libcxx
else
  echo "Not for this machine: a program of libc++"
fi
check "librondo.so shows the API only" only_the_api
check "librondo.so needs the C and C++ runtimes and OpenSSL only" only_system_libraries
check "librondo.so has its soname" has_soname librondo.so
check "librondo_c.so has its soname" has_soname librondo_c.so
check "librondo.a shows the API only" only_the_api_in_the_archive
check "a program with headers of its own, by pkg-config" own_headers_by_pkg_config
check "a program with headers of its own, by CMake" own_headers_by_cmake
check "a program with fmt and Asio of its own" own_packages
check "DESTDIR and LIBDIR" staged
check "LIBDIR=lib64" lib64
if mpicxx -E -include mpi.h -xc++ /dev/null >/dev/null 2>&1 && command -v mpirun >/dev/null; then
  check "examples/mpi_id.cc" mpi_example
else
  echo "Not for this machine: examples/mpi_id.cc (no mpicxx that compiles)"
fi
check "exceptions keep their type across the border" exceptions_cross
check "library and pkg-config say the same version" one_version
if [[ ! -e /dev/nvidiactl ]]; then check "a call on a stream without a driver" no_driver; fi
check "the prefix can be moved" movable
for tool in rondo-run rondo-bench rondo-view rondo-trace rondo-top rondo-doctor; do
  check "$tool --version" prints_version "$tool"
done
check "rondo-view writes a page" "$prefix/bin/rondo-view" -o "$prefix/plan.html"
finish_checks
