#!/usr/bin/env bash
# DeepSpeed, Lightning, Accelerate and Ray Train on the backend "rondo": what they train is what they train with gloo;
# LightGBM: the models of its own sockets; torchft loses a replica and takes in another.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh
venv=$PWD/.venv-integrations
torch_environment "$venv"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# They must not bring another torch: the CPU build stays.
"$venv/bin/pip" freeze --disable-pip-version-check | grep '^torch==' >"$folder/constraints.txt"
pip_install "$venv" -c "$folder/constraints.txt" numpy pytest setuptools wheel \
  "lightning==2.6.6" "accelerate==1.15.0" "ray[train]==2.60.0" "lightgbm==4.7.0" "torchft==0.2.0"
# DeepSpeed looks for torch while it is built, and compiles its C++ parts when a program asks for one.
DS_BUILD_OPS=0 pip_install "$venv" -c "$folder/constraints.txt" --no-build-isolation "deepspeed==0.19.8"
install_wheel "$venv"

export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 RONDO_TORCH_CACHE=$folder/cache
log=$folder/pytest.log
check "pytest ran" pytest_counts "$venv" 1800 tests/integrations
finish_checks
