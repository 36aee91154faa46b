#!/usr/bin/env bash
# The Python package: its wheel in a fresh environment with nothing but NumPy, the first example; and its tests, in
# .venv-python, which has what they need and is kept.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$PWD

# fresh_environment FOLDER: the wheel and NumPy.
fresh_environment() {
  python3 -m venv "$1" && pip_install "$1" build/wheel/*.whl
}

# first_example VENV: the README's three lines, outside the tree, by the launcher in the wheel.
first_example() {
  cat >"$folder/first.py" <<'SCRIPT'
import numpy as np, rondo
group = rondo.init()
print(group.all_reduce(np.ones(2), op="sum"))
SCRIPT
  local output
  output=$(cd "$folder" && "$1/bin/python" -m rondo.run -n 2 first.py) || return 1
  [[ $(grep -cF '[2. 2.]' <<<"$output") == 2 ]]
}

# environment_of_tests FOLDER: made unless it is there, with these packages.
environment_of_tests() {
  local packages=(numpy pytest ml_dtypes nbclient nbformat ipykernel cloudpickle mypy basedpyright)
  [[ ! -f $1/packages || $(<"$1/packages") != "${packages[*]}" ]] || return 0
  echo "Installing what the tests need in $1"
  rm -rf "$1"
  python3 -m venv "$1"
  pip_install "$1" "${packages[@]}"
  echo "${packages[*]}" >"$1/packages"
}

check "the wheel installs in a fresh environment" fresh_environment "$folder/venv"
check "the first example" first_example "$folder/venv"
python=$tree/.venv-python
environment_of_tests "$python"
install_wheel "$python"
run_bazel build //tests/life //tests/support/fake_cuda:libcuda.so.1 # test_device.py
export RONDO_TREE=$tree PYTHONDONTWRITEBYTECODE=1
# shellcheck disable=SC2034  # of pytest_counts
log=$folder/pytest.log
check "pytest ran" pytest_counts "$python" 600 tests/python
lives=("$(bazel_bin)/tests/life/life" --patience=60 --shrink-seconds=30 --python="$python/bin/python tests/life/python/life_rank.py")
check "lives of ranks with NumPy beside C++ and C" "${lives[@]}" --doors=numpy,cpp/numpy,c/numpy --hosts=none --seeds=1-6
check "tests/life/mixed.life" "${lives[@]}" --play=tests/life/mixed.life
check "every collective by NumPy" "${lives[@]}" --doors=numpy --play=tests/life/calls.life
finish_checks
