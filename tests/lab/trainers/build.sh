#!/usr/bin/env bash
# Builds the trainer mlp_LIBRARY.cc in FOLDER, or says what is missing and exits with 1. Bazel builds mlp_rondo.cc.
#   tests/lab/trainers/build.sh FOLDER mpi | gloo
# mpi: MPICXX, else the mpicxx of the PATH. gloo: Debian's libgloo-dev.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../../.." && pwd)
if [[ $# != 2 || ! $2 =~ ^(mpi|gloo)$ ]]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$1 library=$2
source=$here/mlp_$library.cc program=$folder/mlp_$library
flags=(-std=c++20 -O3 -DNDEBUG "-I$tree")
missing() {
  echo "build.sh: $1" >&2
  exit 1
}

case $library in
  mpi)
    compiler=${MPICXX:-mpicxx}
    command -v "${compiler%% *}" >/dev/null || missing "no $compiler: apt-get install libopenmpi-dev, or set MPICXX"
    # shellcheck disable=SC2086
    $compiler "${flags[@]}" -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "$source" -o "$program"
    ;;
  gloo)
    [[ -e /usr/include/gloo/allreduce.h ]] || missing "no Gloo: apt-get install libgloo-dev"
    "${CXX:-g++}" "${flags[@]}" "$source" -lgloo -pthread -o "$program"
    ;;
esac
