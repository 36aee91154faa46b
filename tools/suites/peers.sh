#!/usr/bin/env bash
# Other libraries, installed from PyPI and Debian, built and run beside Rondo for a moment; and the report of it.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" libgloo-dev python3 python3-venv
check "Gloo's driver builds" tests/lab/peers/build_gloo.sh
for mpi in openmpi mpich intelmpi oneccl; do
  check "the driver of $mpi is installed and builds" tests/lab/peers/build_mpi.sh "$mpi"
done
run_bazel build //bench:rondo-bench
bench=$(bazel_bin)/bench/rondo-bench
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# A peer that leaves a line instead of rows fails the check; how fast anybody is does not matter here.
compares() {
  timeout 900 tests/lab/measure.sh --compare openmpi,mpich,intelmpi,oneccl,gloo,gloo-sync --transport tcp --sizes 8,64K,1M --runs 2 \
    --seconds 0.05 --json "$out/compare.json" | tee "$out/compare.txt" &&
    ! grep -q "is missing" "$out/compare.txt"
}
check "tests/lab/measure.sh --compare measures every peer" compares
check "all gradients of a model" timeout 300 "$bench" --ranks 2 --sizes resnet50 --no-limit --seconds 0.05
check "tables and picture are made" bash -c "tests/lab/report.sh --picture '$out/picture.svg' '$out/compare.json' >'$out/tables.md'"
check "the tables have every peer" grep -q "gloo-sync" "$out/tables.md"
check "the picture is one file of its own" grep -q '<svg' "$out/picture.svg"
finish_checks
