#!/usr/bin/env bash
# pip's own build of the Python package beside Bazel's, CMake's, conda's recipe, the wheel with other versions of Python.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv binutils pkg-config cmake make
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
  (cd "$folder"/sdist/rondo_ring-*/ && RONDO_LIBRARY=$library RONDO_RUN=$native/rondo-run \
    RONDO_MODULE=$native/../../_rondo.abi3.so "$folder/source/bin/python" "${pip[@]}" wheel --no-deps --wheel-dir "$folder/sdist" .) || return 1
  local source
  while read -r source; do
    [[ -f $(echo "$folder"/sdist/rondo_ring-*/native/"$source") ]] || { echo "not in the sdist: $source"; return 1; }
  done < <(git ls-files 'ring/*.cc' 'ring/*.h' 'transport/*.cc' 'transport/*.h' 'kernels/*.h' 'kernels/rows/*.cc' 'tools/launcher/*.cc' 'python/module/*')
}

check "pip install ./python in 3 minutes, and it says how far it is" within 180 "pip install ./python on $(nproc) cores" builds_from_source
native=$(echo "$folder"/source/lib/python3*/site-packages/rondo/_native)
library=$(echo "$native"/librondo_c.so.*)
check "its first program" sums_in "$folder" "$folder/source/bin/python" -m rondo.run -n 2 sum.py
run_bazel build //ring:librondo_c.so //tests/support/fake_cuda:libcuda.so.1 # test_device.py
check "tests/python on what pip built" bash -c "'$folder/source/bin/python' ${pip[*]} install pytest ml_dtypes cloudpickle mypy basedpyright &&
  RONDO_TREE='$tree' PYTHONDONTWRITEBYTECODE=1 timeout 600 '$folder/source/bin/python' -m pytest -q -p no:cacheprovider tests/python"
check "both builds have the same vector code" python3 tests/python/compare_builds.py "$(bazel_bin)/ring/librondo_c.so" "$library"
check "the sdist" sdist_has_sources

conda_recipe() {
  "$folder/source/bin/python" "${pip[@]}" install py-rattler-build && "$folder/source/bin/python" -B tests/install/conda_recipe.py
}
check "conda's recipe" conda_recipe

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

finish_checks
