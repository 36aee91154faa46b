#!/usr/bin/env bash
# Every block of code of every page runs, or says why not; the site builds without a warning and asks nothing from outside.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" pkg-config cmake make python3 python3-venv
prefix=$(mktemp -d)
log=$(mktemp)
trap 'rm -rf "$prefix" "$log"' EXIT

check "links in *.md" python3 tests/docs/check_links.py .
check "the site builds" tools/site.sh
check "what Python's blocks import" .venv-site/bin/python -m pip install --quiet --disable-pip-version-check numpy ml_dtypes
check "no page of the site fetches from outside" python3 tests/docs/outside.py build/site

tools/install.sh "$prefix" >"$log" 2>&1 || { cat "$log"; exit 1; }
run_bazel build //ring:librondo_c.so //python:_rondo.abi3.so
RONDO_LIBRARY=$(bazel_bin)/ring/librondo_c.so
RONDO_PYTHON=$PWD/.venv-site/bin/python
PYTHONPATH=$PWD/python:$(bazel_bin)/python
export RONDO_LIBRARY RONDO_PYTHON PYTHONPATH PYTHONDONTWRITEBYTECODE=1
python3 tests/docs/run_blocks.py "$prefix" README.md CONTRIBUTING.md docs/*.md | tee "$log" || true
while read -r result place; do record "$result" "docs: $place"; done < <(grep -E '^(pass|fail) ' "$log")
check "the blocks were counted" grep -qE '^[0-9]+ blocks, of which [0-9]+ are not run$' "$log"
finish_checks
