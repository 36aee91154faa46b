#!/usr/bin/env bash
# A C++ program started by rondo-run, Open MPI's mpirun, MPICH's mpiexec and torchrun, with nothing else set.
set -euo pipefail
source tools/lib/suite.sh

# RONDO_TORCH: another torch, as pip names it. Only its launcher is used: the build without CUDA is enough.
need_packages "${BUILD_PACKAGES[@]}" openmpi-bin mpich openssh-server iproute2 python3 python3-venv
venv=$PWD/.venv-torch
if [[ ! -x $venv/bin/torchrun ]]; then
  echo "Installing torch in $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${RONDO_TORCH:-torch==2.13.0}"
fi

run_bazel build //examples:all_reduce //tools:rondo-run
bin=$(bazel_bin)
program=$bin/examples/all_reduce

# Both MPIs bring an mpirun; Debian keeps each under a name of its own.
# plm isolated: Open MPI starts local ranks only, and wants no ssh.
openmpi=(mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm isolated)
mpich=(mpiexec.hydra)
torchrun=("$venv/bin/torchrun" --no-python)

# starts WORLD COMMAND...: that many ranks, each of which knows the world. Ranks that took themselves for a world of one
# would find their sums right too.
# The environment is clean: what a launcher does not set itself must not be needed.
starts() {
  local world=$1 output
  shift
  if ! output=$(env -i PATH="$PATH" HOME="${HOME:-/root}" timeout 120 "$@" "$program" 2>&1) ||
    (($(grep -cE "rank [0-9]+ of $world: every sum is $((world * (world + 1) / 2))$" <<<"$output") != world)); then
    echo "$output"
    return 1
  fi
}

for world in 1 2 4; do
  check "rondo-run -n $world" starts "$world" "$bin/tools/rondo-run" -n "$world"
  check "mpirun.openmpi -n $world" starts "$world" "${openmpi[@]}" -n "$world"
  check "mpiexec.hydra -n $world" starts "$world" "${mpich[@]}" -n "$world"
  check "torchrun --standalone, world $world" starts "$world" "${torchrun[@]}" --standalone --nproc-per-node "$world"
done
check "torchrun --master-port" starts 2 "${torchrun[@]}" --nnodes 1 --nproc-per-node 2 --master-port 12355

# run_script FILE ARGUMENTS...: checks of its own, which it counts.
run_script() {
  local status=0
  bash "tests/launchers/$1" "${@:2}" || status=$?
  ((status == 0 || status == CHECKS_FAILED)) || record fail "tests/launchers/$1 stopped with exit code $status"
}

run_script ssh_hosts.sh "$bin/tools/rondo-run" "$program"
finish_checks
