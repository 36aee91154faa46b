# shellcheck shell=bash
# For the suites that run Python: the wheel, pytest, and an environment with a CPU build of torch.

# The wheel is what is tested: nothing that a developer has set may stand in for it.
unset PYTHONPATH RONDO_LIBRARY RONDO_RUN RONDO_TORCH_CACHE

# RONDO_TORCH: another torch, as pip names it.
# torch_environment FOLDER: makes the environment unless it is there.
torch_environment() {
  [[ ! -x $1/bin/torchrun ]] || return 0
  echo "Installing torch in $1"
  rm -rf "$1"
  python3 -m venv "$1"
  pip_install "$1" "${RONDO_TORCH:-torch==2.13.0}"
}

# torch_headers PYTHON VERSION: what a backend for that release of torch is compiled against, in build/torch/VERSION/torch.
torch_headers() {
  local folder=build/torch/$2
  [[ ! -d $folder/torch ]] || return 0
  echo "Fetching the headers of torch $2"
  rm -rf "$folder"
  mkdir -p "$folder"
  # Those of one release are the same for every Python.
  "$1" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 \
    --dest "$folder" "torch==$2" || return 1
  "$1" - "$folder" <<'SCRIPT'
import pathlib, sys, zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("torch-*.whl")
with zipfile.ZipFile(wheel) as file:
    keeps = ("torch/include/", "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so")
    file.extractall(folder / "unpacked", [name for name in file.namelist() if name.startswith(keeps)])
wheel.unlink()
(folder / "unpacked/torch").rename(folder / "torch")
SCRIPT
}

# pip_install FOLDER ARGUMENT...
pip_install() {
  local folder=$1
  shift
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# install_wheel FOLDER: what tools/wheel.sh has made. What an earlier one has compiled beside it goes: pip leaves it.
install_wheel() {
  rm -rf "$1"/lib/python3*/site-packages/rondo
  pip_install "$1" --force-reinstall --no-deps build/wheel/*.whl
}

# pytest_counts FOLDER SECONDS TESTS: runs the folder of tests, at most so long, and counts each as one check. log: a
# variable of the caller, a file.
pytest_counts() {
  local name result
  timeout "$2" "$1/bin/python" -m pytest -q -rA -p no:cacheprovider "$3" |
    tee "${log:?}" | grep -vE '^(PASSED|=+ PASSES)' || true
  while read -r result name; do
    case $result in
      PASSED) record pass "$name" ;;
      FAILED | ERROR) record fail "$name" ;;
    esac
  done < <(grep -E '^(PASSED|FAILED|ERROR) ' "$log")
  grep -qE '[0-9]+ passed' "$log"
}
