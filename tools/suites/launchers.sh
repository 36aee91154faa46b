#!/usr/bin/env bash
# C++ and NumPy programs under the launchers that people have, with nothing else set.
set -euo pipefail
source tools/lib/suite.sh

# RONDO_TORCH: another torch, as pip names it. Only its launcher is used: the build without CUDA is enough.
need_packages "${BUILD_PACKAGES[@]}" openmpi-bin mpich openssh-server iproute2 slurm-wlm munge libpmix-dev python3 python3-venv
venv=$PWD/.venv-launchers
if [[ ! -x $venv/bin/torchrun || ! -x $venv/bin/ray || ! -x $venv/bin/dask ]]; then
  echo "Installing torch, Ray and Dask in $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check numpy "${RONDO_TORCH:-torch==2.13.0}" ray distributed
fi
tools/wheel.sh
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps build/wheel/*.whl

run_bazel build //examples:all_reduce //tools:rondo-run
bin=$(bazel_bin)
program=$bin/examples/all_reduce
python=$venv/bin/python

source tests/launchers/starts.sh
check "our declarations of PMIx are those of its header" g++ -std=c++20 -fsyntax-only -I. \
  -I"$(dirname "$(find /usr/include /usr/lib -path '*/include/pmix.h' | head -n 1)")" tests/launchers/pmix_abi.cc
for world in 1 2 4; do check "rondo-run -n $world" sums "$world" "$bin/tools/rondo-run" -n "$world" "$program"; done
check "python -m rondo.run, NumPy" sums 2 "$python" -m rondo.run -n 2 tests/launchers/sum.py
run_script tests/launchers/ssh_hosts.sh "$bin/tools/rondo-run" "$program"
run_script tests/launchers/torchrun.sh "$program" "$venv"
run_script tests/launchers/mpi.sh "$program" "$python"
run_script tests/launchers/mpi_hosts.sh "$program"
run_script tests/launchers/slurm.sh "$program" "$python"
check "Ray actors" prints 16 '^rank [0-3] of 4: sum 10$' "$python" tests/launchers/ray_actors.py
check "Dask workers" prints 4 '^rank [0-3] of 4: sum 10$' "$python" tests/launchers/dask_workers.py
finish_checks
