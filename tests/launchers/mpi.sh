#!/usr/bin/env bash
# C++ and NumPy programs under Open MPI's mpirun and MPICH's mpiexec.
#   tests/launchers/mpi.sh PROGRAM PYTHON    PROGRAM: examples/all_reduce; PYTHON: one with the package rondo
set -euo pipefail
source tools/lib/suite.sh
source tests/launchers/starts.sh

program=$1 python=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf 'localhost slots=2\n' >"$folder/openmpi"
printf 'localhost:2\n' >"$folder/mpich"

# Both bring an mpirun; Debian keeps each under a name of its own. Open MPI refuses root without the option. plm isolated:
# it starts local ranks only, and wants no ssh.
openmpi=(mpirun.openmpi --allow-run-as-root --mca plm isolated)
mpich=(mpiexec.hydra)

for world in 1 2 4; do
  check "mpirun.openmpi -n $world" sums "$world" "${openmpi[@]}" --oversubscribe -n "$world" "$program"
  check "mpiexec.hydra -n $world" sums "$world" "${mpich[@]}" -n "$world" "$program"
done
check "mpirun.openmpi, a host file without -n" sums 2 "${openmpi[@]}" --hostfile "$folder/openmpi" "$program"
check "mpiexec.hydra, a host file without -n" sums 2 "${mpich[@]}" -f "$folder/mpich" "$program"
check "mpirun.openmpi, NumPy" sums 2 "${openmpi[@]}" --oversubscribe -n 2 "$python" tests/launchers/sum.py
check "mpiexec.hydra, NumPy" sums 2 "${mpich[@]}" -n 2 "$python" tests/launchers/sum.py

# Two jobs at a time do not meet. Each has a TMPDIR of its own: two of Open MPI's mpirun that start at once fail by
# themselves when both make its session folder.
two_jobs() {
  local first status=0
  mkdir "$folder/$1.1" "$folder/$1.2"
  sums 2 env TMPDIR="$folder/$1.1" "$@" &
  first=$!
  sums 2 env TMPDIR="$folder/$1.2" "$@" || status=$?
  wait "$first" || status=$?
  return "$status"
}
check "mpirun.openmpi, two jobs at a time" two_jobs "${openmpi[@]}" --oversubscribe -n 2 "$program"
check "mpiexec.hydra, two jobs at a time" two_jobs "${mpich[@]}" -n 2 "$program"
finish_checks
