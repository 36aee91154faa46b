#!/usr/bin/env bash
# gpu_run_test.sh RUN.SH: the bundle's script leaves LD_LIBRARY_PATH, where the driver may lie, to the programs that it
# runs; it says which step failed.
set -euo pipefail
cp "$1" "$TEST_TMPDIR/run.sh"
cd "$TEST_TMPDIR"
for program in device_probe_test device_folds_test device_bench rondo-bench; do
  # shellcheck disable=SC2016  # the programs' own
  printf '#!/bin/sh\necho "$0 $LD_LIBRARY_PATH $RONDO_DEVICE_LIBRARY" >>seen\n[ "$0" != ./device_bench ]\n' >"$program"
  chmod +x "$program"
done
echo 1 >version
code=0
out=$(LD_LIBRARY_PATH=/opt/driver timeout 60 ./run.sh kernels </dev/null) || code=$?
[ "$code" = 1 ] || { echo "FAIL: exit code $code: $out"; exit 1; }
grep -q '^FAILED: GB/s of the passes' <<<"$out" || { echo "FAIL: the failure is not said: $out"; exit 1; }
grep -q '^passed: the passes of every dtype' <<<"$out" || { echo "FAIL: a step did not run: $out"; exit 1; }
if grep -v ':/opt/driver ' seen; then echo "FAIL: programs do not see the driver"; exit 1; fi
grep -q '/opt/driver libcuda.so.1$' seen || { echo "FAIL: another driver is opened"; exit 1; }
