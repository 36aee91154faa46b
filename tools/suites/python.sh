#!/usr/bin/env bash
# The Python package: its wheel in a fresh environment with nothing but NumPy, the first example, and its tests.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$PWD

# fresh_environment PYTHON FOLDER: the wheel and NumPy.
fresh_environment() {
  "$1" -m venv "$2" && "$2/bin/pip" install --quiet --disable-pip-version-check "$tree"/build/wheel/*.whl
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

python=$folder/venv
check "the wheel installs in a fresh environment" fresh_environment python3 "$python"
check "the first example" first_example "$python"
run_bazel build //tests/life //tests/support/host_device:libhost_device.so # test_device.py
"$python/bin/pip" install --quiet --disable-pip-version-check pytest ml_dtypes nbclient nbformat ipykernel
pytest_counts() {
  local log=$folder/pytest.log name result
  (RONDO_TREE=$tree PYTHONDONTWRITEBYTECODE=1 timeout 600 "$python/bin/python" -m pytest -q -rA -p no:cacheprovider tests/python) |
    tee "$log" | grep -vE '^(PASSED|=+ PASSES)' || true
  while read -r result name; do
    case $result in
      PASSED) record pass "$name" ;;
      FAILED | ERROR) record fail "$name" ;;
    esac
  done < <(grep -E '^(PASSED|FAILED|ERROR) ' "$log")
  grep -qE '[0-9]+ passed' "$log"
}
check "pytest ran" pytest_counts
check "lives of ranks with NumPy beside C++ and C" "$(bazel_bin)/tests/life/life" --patience=60 --shrink-seconds=30 \
  --python="$python/bin/python tests/life/python/life_rank.py" --doors=numpy,cpp/numpy,c/numpy --hosts=none --seeds=1-12

# Other versions of Python, where they are found.
for version in 3.10 3.12 3.13 3.14; do
  found=""
  for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python3; do
    if "$candidate" -c "import venv" 2>/dev/null; then found=$candidate; fi
  done
  [[ -n $found ]] || continue
  check "the first example, Python $version" bash -c "$(declare -f fresh_environment first_example); \
    folder=$folder tree=$tree; fresh_environment $found $folder/$version && first_example $folder/$version"
done
finish_checks
