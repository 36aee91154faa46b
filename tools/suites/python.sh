#!/usr/bin/env bash
# The Python package: its wheel in a fresh environment with nothing but NumPy, the first example, and its tests.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh
check "python/native.json is what Bazel builds" tools/native_manifest.py --check

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

# Every call gives what the C++ program of the same name gives: 17 calls on each of 4 ranks.
primitives_agree() {
  local bin
  bin=$(bazel_bin)
  "$1/bin/python" -m rondo.run -n 4 examples/python/primitives.py | sort >"$folder/python.txt"
  "$bin/tools/rondo-run" -n 4 "$bin/examples/primitives" | sort >"$folder/cc.txt"
  [[ $(wc -l <"$folder/python.txt") == 68 ]] && diff "$folder/python.txt" "$folder/cc.txt"
}

# The trainer on made images: what 2 ranks train is equal on both.
trains() {
  "$1/bin/python" - "$folder" <<'SCRIPT'
import sys, numpy as np
random = np.random.default_rng(1)
for part, count in (("train", 512), ("t10k", 64)):
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 50, (count, 28, 28)).astype(np.uint8)
    images[np.arange(count), labels] += 200
    for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes([0, 0, 8, data.ndim]) + np.array(data.shape, ">u4").tobytes()
        open(f"{sys.argv[1]}/{part}-{kind}-ubyte", "wb").write(head + data.tobytes())
SCRIPT
  OMP_NUM_THREADS=1 "$1/bin/python" -m rondo.run -n 2 examples/python/average_gradients.py --epochs 1 \
    --folder "$folder" "${@:2}" | tee "$folder/trained.txt" &&
    grep -q "parameters equal on all ranks" "$folder/trained.txt"
}

python=$folder/venv
check "the wheel installs in a fresh environment" fresh_environment python3 "$python"
check "the first example" first_example "$python"
run_bazel build //examples:primitives //tools:rondo-run
check "the primitives in Python and in C++" primitives_agree "$python"
check "average_gradients.py" trains "$python"
check "average_gradients.py --one-by-one" trains "$python" --one-by-one
"$python/bin/pip" install --quiet --disable-pip-version-check pytest ml_dtypes
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
