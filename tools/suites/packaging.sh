#!/usr/bin/env bash
# pip's own build of the Python package beside Bazel's, other versions of Python, the wheel in a system with Python alone.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv binutils debootstrap pkg-config cmake make
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
tree=$PWD
pip=(-m pip --quiet --disable-pip-version-check)

# sums_in FOLDER COMMAND...: two ranks of a NumPy program, away from the tree.
sums_in() {
  local output
  cp tests/launchers/sum.py "$1/sum.py"
  output=$(cd "$1" && "${@:2}" 2>&1) && (($(grep -c 'of 2: sum 3$' <<<"$output") == 2)) && return
  echo "$output"
  return 1
}

# within SECONDS NAME COMMAND...: prints how long the command took, which fails if it was longer.
within() {
  local begin took
  begin=$(date +%s%N)
  "${@:3}" || return 1
  took=$((($(date +%s%N) - begin) / 1000000))
  echo "$2: $((took / 1000)).$((took / 100 % 10)) s"
  ((took <= 1000 * $1))
}

# --- pip install ./python: g++ alone

# A bazel that fails stands before the real one.
builds_from_source() {
  mkdir "$folder/no-bazel"
  printf '#!/bin/sh\necho "pip asked for bazel" >&2\nexit 1\n' >"$folder/no-bazel/bazel"
  chmod +x "$folder/no-bazel/bazel"
  python3 -m venv "$folder/source" &&
    # pip keeps what a build prints, so that this one writes to the terminal.
    PATH=$folder/no-bazel:$PATH script --quiet --return --command "$folder/source/bin/python ${pip[*]} install ./python" /dev/null |
    tee "$folder/source.log" && grep -q '^rondo: [0-9]* of [0-9]* files compiled' "$folder/source.log"
}

# The sdist carries the C++ sources: it installs where there is no tree.
sdist_has_sources() {
  "$folder/source/bin/python" "${pip[@]}" install build || return 1
  if ! "$folder/source/bin/python" -m build --sdist --outdir "$folder/sdist" python >"$folder/sdist.log" 2>&1; then
    cat "$folder/sdist.log"
    return 1
  fi
  tar -C "$folder/sdist" -xzf "$folder"/sdist/*.tar.gz
  # Its version and flags are read without the tree; what is compiled was compiled above, and is not again.
  (cd "$folder"/sdist/rondo_ring-*/ && RONDO_LIBRARY=$native/librondo_c.so RONDO_RUN=$native/rondo-run \
    RONDO_MODULE=$native/../../_rondo.abi3.so "$folder/source/bin/python" "${pip[@]}" wheel --no-deps --wheel-dir "$folder/sdist" .) || return 1
  local source
  while read -r source; do
    [[ -f $(echo "$folder"/sdist/rondo_ring-*/native/"$source") ]] || { echo "not in the sdist: $source"; return 1; }
  done < <(git ls-files 'ring/*.cc' 'ring/*.h' 'transport/*.cc' 'transport/*.h' 'kernels/*.h' 'kernels/rows/*.cc' 'tools/launcher/*.cc' 'python/module/*')
}

check "pip install ./python in 3 minutes, and it says how far it is" within 180 "pip install ./python on $(nproc) cores" builds_from_source
native=$(echo "$folder"/source/lib/python3*/site-packages/rondo/_native)
check "its first program" sums_in "$folder" "$folder/source/bin/python" -m rondo.run -n 2 sum.py
check "tests/python on what pip built" bash -c "'$folder/source/bin/python' ${pip[*]} install pytest ml_dtypes cloudpickle &&
  RONDO_TREE='$tree' PYTHONDONTWRITEBYTECODE=1 timeout 600 '$folder/source/bin/python' -m pytest -q -p no:cacheprovider tests/python"
run_bazel build //ring:librondo_c.so
check "both builds have the same vector code" python3 tests/python/compare_builds.py "$(bazel_bin)/ring/librondo_c.so" "$native/librondo_c.so"
check "the sdist" sdist_has_sources

# --- CMake, without Bazel

by_cmake() {
  cmake -S . -B "$folder/cmake" -DCMAKE_INSTALL_PREFIX="$folder/cmake-prefix" && cmake --build "$folder/cmake" -j "$(nproc)" &&
    cmake --install "$folder/cmake"
}
check "CMake builds and installs" by_cmake
tests/install/install_test.sh "$folder/cmake-prefix" || [[ $? == "$CHECKS_FAILED" ]]

# --- the wheel

check "tools/wheel.sh --manylinux" tools/wheel.sh --manylinux --torch 2.13.0
check "the wheel's name says which systems" compgen -G 'build/wheel/rondo_ring-*-cp311-abi3-manylinux_2_*_x86_64.whl'

for version in 3.11 3.12 3.13 3.14; do
  found=""
  for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python3; do
    if "$candidate" -c "import venv" 2>/dev/null; then found=$candidate; fi
  done
  if [[ -z $found ]]; then
    echo "Not found, not tried: Python $version"
    continue
  fi
  check "the wheel, Python $version" bash -c "'$found' -m venv '$folder/$version' && \
    '$folder/$version/bin/python' ${pip[*]} install build/wheel/*.whl"
  check "its first program, Python $version" sums_in "$folder" "$folder/$version/bin/python" -m rondo.run -n 2 sum.py
done

# A root folder that holds Debian's smallest system and Python, and wheels of what is compared; no compiler. Mounts end
# with the command.
bare_root() {
  local site
  site=$(apt-get indextargets --format "\$(SITE)" "Codename: bookworm" "Component: main" | head -n 1)
  debootstrap --variant=minbase --include=python3,python3-venv bookworm "$root" "$site" >"$folder/root.log" 2>&1 || {
    tail "$folder/root.log"
    return 1
  }
  mkdir "$root/wheels"
  cp build/wheel/*.whl "$root/wheels"
  python3 "${pip[@]}" download --dest "$root/wheels" --only-binary :all: --python-version 3.11 numpy mpich mpi4py torch==2.13.0 || return 1
  cp tests/launchers/sum.py "$root/sum.py"
  cat >"$root/mpi.py" <<'SCRIPT'
import numpy as np
from mpi4py import MPI

values = np.full(4, 1.0 + MPI.COMM_WORLD.rank)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, values)
print(f"rank {MPI.COMM_WORLD.rank} of 2: sum {values[0]:g}", flush=True)
SCRIPT
  cat >"$root/first_use.py" <<'SCRIPT'
import time, torch, torch.distributed as dist

begin = time.monotonic()
dist.init_process_group("rondo")
tensor = torch.ones(2) * (1 + dist.get_rank())
dist.all_reduce(tensor)
took = time.monotonic() - begin
print(f"rank {dist.get_rank()} of 2: sum {tensor[0]:g}; torch's first use of rondo took {took:.2f} s", flush=True)
assert took < 3
SCRIPT
  ! in_root "command -v cc gcc g++ c++ clang"
}

in_root() {
  unshare --mount sh -ec "mount -t proc proc '$root/proc'; mount -t tmpfs tmpfs '$root/dev/shm'; exec chroot '$root' sh -ec '$1'"
}

# environment NAME REQUIREMENT...: a new one in the root, from its wheels.
environment() {
  in_root "python3 -m venv /$1 && /$1/bin/pip install --quiet --no-index --find-links /wheels ${*:2}"
}

# sums COMMAND: two ranks in the root.
sums() {
  local output
  output=$(in_root "$1" 2>&1) && echo "$output" && (($(grep -o 'of 2: sum 3' <<<"$output" | wc -l) == 2)) && return
  echo "$output"
  return 1
}
from_nothing() { environment rondo rondo-ring && sums "/rondo/bin/rondo-run -n 2 /rondo/bin/python /sum.py"; }
from_nothing_by_mpi() { environment mpi mpich mpi4py numpy && sums "/mpi/bin/mpiexec -n 2 /mpi/bin/python /mpi.py"; }
programs() {
  in_root "cd /tmp && mkdir trace && RONDO_TRACE=/tmp/trace /rondo/bin/rondo-run -n 2 /rondo/bin/python /sum.py &&
    /rondo/bin/rondo-trace report /tmp/trace -o report.html && /rondo/bin/rondo-top --help && /rondo/bin/rondo-view -o view.html && /rondo/bin/rondo-doctor &&
    /rondo/bin/rondo-bench --ranks 2 -e 1K --seconds 0.01 && test -s report.html -a -s view.html" >"$folder/programs.log" 2>&1 && return
  cat "$folder/programs.log"
  return 1
}

root=$folder/root
check "a system with Python alone" bare_root
check "there, from nothing to the first all_reduce in 10 s" within 10 "pip install rondo-ring, and the first all_reduce" from_nothing
check "beside it, mpich and mpi4py" within 600 "pip install mpich mpi4py, and the first Allreduce" from_nothing_by_mpi
check "there, every program of the wheel runs" programs
check "there, torch" environment torch torch==2.13.0 numpy rondo-ring
check "there, torch's first use of rondo in 3 s" sums "/torch/bin/rondo-run -n 2 /torch/bin/python /first_use.py"
finish_checks
