#!/usr/bin/env bash
# torch's own multi-process tests of backends, worlds of 2 and 3: what passes with gloo passes with rondo.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh
venv=$PWD/.venv-torch
torch_environment "$venv"
pip_install "$venv" numpy pytest expecttest
install_wheel "$venv"

tree=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 RONDO_TORCH_CACHE=$folder/cache

# upstream BACKEND WORLD: the names of the tests that pass, in BACKEND.WORLD. torch gives monitored_barrier to gloo alone.
upstream() {
  BACKEND=$1 WORLD_SIZE=$2 "$venv/bin/python" -m pytest -q -rA -p no:cacheprovider "$tree/tests/torch/upstream.py" \
    -k "not cuda and not nccl and not monitored_barrier" >"log.$1.$2" 2>&1 || true
  sed -n 's/^PASSED .*:://p' "log.$1.$2" | sort >"$1.$2"
  [[ -s $1.$2 ]]
}

for world in 2 3; do
  check "gloo, world $world" upstream gloo "$world"
  check "rondo, world $world" upstream rondo "$world"
  while read -r name; do
    if grep -qx "$name" "rondo.$world"; then
      record pass "$name, world $world"
    else
      record fail "$name, world $world: passes with gloo, and not with rondo"
      grep -A40 "_ TestUpstream.$name _" "log.rondo.$world" | tail -n 40 || true
    fi
  done <"gloo.$world"
done
cd "$tree"
finish_checks
