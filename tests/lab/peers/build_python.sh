#!/usr/bin/env bash
# Makes build/peers/rondo-python, an environment with the wheel that tools/wheel.sh has made: the peer rondo-python of
# tests/lab/measure.sh --compare.
set -euo pipefail
cd "$(dirname "$0")/../../.."
python3 -m venv build/peers/rondo-python
build/peers/rondo-python/bin/pip install -q --disable-pip-version-check --force-reinstall build/wheel/*.whl
echo "built build/peers/rondo-python"
