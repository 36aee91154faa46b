#!/usr/bin/env bash
# run_test.sh RUN.SH SOURCE...: the test cases that the bundle's script names are there, each probe of a GPU among
# them; it leaves LD_LIBRARY_PATH, where the driver may lie, to the programs that it runs; it says which step failed, and
# what it could not measure is in its table, too.
set -euo pipefail
declare -A cases
for source in "${@:2}"; do cases[$(basename "$source" .cc)]=$(grep -A1 -h 'TEST_CASE(' "$source" | grep -o '"[^"]*"'); done
found=0
while IFS=$'\t' read -r program patterns; do
  IFS=, read -ra globs <<<"$patterns"
  for glob in "${globs[@]}"; do
    # Doctest's * is the only one of its signs that the script uses.
    grep -qi "^\"${glob//\*/.*}\"\$" <<<"${cases[$program]}" || { echo "FAIL: $program has no case '$glob'"; exit 1; }
    ((++found))
  done
done < <(sed -nE 's/.*\.\/(device_[a-z]+_test) .*-tc="([^"$]*)".*/\1\t\2/p' "$1")
((found > 20)) || { echo "FAIL: $found names of test cases found"; exit 1; }
# The last one is about the driver without a GPU.
probes=$(grep -o '^"[0-9][0-9] ' <<<"${cases[device_probe_test]}" | tr -dc '0-9 \n' | head -n -1 | tr -d '\n')
grep -q "for probe in ${probes% };" "$1" || { echo "FAIL: the probes are $probes"; exit 1; }
cp "$1" "$TEST_TMPDIR/run.sh"
cd "$TEST_TMPDIR"
for program in device_probe_test device_folds_test device_bench rondo-bench; do
  # shellcheck disable=SC2016  # the programs' own
  printf '#!/bin/sh\necho "$0 $LD_LIBRARY_PATH $RONDO_DEVICE_LIBRARY" >>seen\n[ "$0" != ./device_bench ]\n' >"$program"
  chmod +x "$program"
done
echo 'echo "| 4 ranks, 64 MiB, 8 lanes: begin | 0.0 |"' | cat device_probe_test - >device_lanes
chmod +x device_lanes
echo 1 >version
code=0
out=$(LD_LIBRARY_PATH=/opt/driver timeout 60 ./run.sh kernels </dev/null) || code=$?
[ "$code" = 1 ] || { echo "FAIL: exit code $code: $out"; exit 1; }
grep -q '^FAILED: GB/s of the passes' <<<"$out" || { echo "FAIL: the failure is not said: $out"; exit 1; }
grep -q '^passed: the passes of every dtype' <<<"$out" || { echo "FAIL: a step did not run: $out"; exit 1; }
grep -A2 '^| lanes, us' <<<"$out" | grep -q '^| 4 ranks, 64 MiB, 8 lanes: begin' || { echo "FAIL: no table of lanes: $out"; exit 1; }
if grep -v ':/opt/driver ' seen; then echo "FAIL: programs do not see the driver"; exit 1; fi
grep -q '/opt/driver libcuda.so.1$' seen || { echo "FAIL: another driver is opened"; exit 1; }
out=$(timeout 60 ./run.sh threads </dev/null) || true
grep -q '^| all_reduce in place, us | 8B | 64KiB |' <<<"$out" || { echo "FAIL: no table: $out"; exit 1; }
grep -q '^| 4 threads on one GPU, registered | - | - |' <<<"$out" || { echo "FAIL: a row is missing: $out"; exit 1; }
