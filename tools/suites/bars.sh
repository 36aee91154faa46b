#!/usr/bin/env bash
# The promises about speed, in the median of 5 interleaved runs beside MPIs, Gloo and raw TCP; wants a quiet machine.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" iproute2 libgloo-dev python3 python3-venv
# A peer that cannot be had leaves its bars not judged, and says so.
tests/lab/peers/build_gloo.sh || true
for mpi in openmpi mpich intelmpi oneccl; do tests/lab/peers/build_mpi.sh "$mpi" || true; done
for world in 2 4 8; do
  check "tests/lab/measure.sh --bars --ranks $world" timeout 7200 tests/lab/measure.sh --bars --ranks "$world" --keep build/bars
done
check "the tables are made" bash -c "tests/lab/report.sh build/bars/*.json >build/bars.md"
finish_checks
