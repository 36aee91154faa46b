#!/usr/bin/env bash
# The trainers of examples/trainers: options, checkpoints, launchers.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

need_packages "${BUILD_PACKAGES[@]}" openmpi-bin mpich python3 python3-venv
venv=$PWD/.venv-torch
torch_environment "$venv"
pip_install "$venv" numpy
check "tools/wheel.sh" tools/wheel.sh
install_wheel "$venv"
run_bazel build //examples:mlp //tools:rondo-run
bin=$(bazel_bin)

images=$(mktemp -d)
trap 'rm -rf "$images"' EXIT
PYTHONPATH=tests/support "$venv/bin/python" -c "
import made_images, pathlib
made_images.write(pathlib.Path('$images'), 4000, 800)"

run_script tests/trainers/mlp.sh "$bin/examples/mlp" "$bin/tools/rondo-run" "$images"
run_script tests/trainers/cnn.sh "$venv/bin/python" "$images"
finish_checks
