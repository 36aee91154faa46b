#!/usr/bin/env bash
# run.sh: checks and measures Rondo on the first GPU of this machine: each step a process of its own with a limit, in
# the order in which a failure says most; 9 minutes at most. results.txt has all of it. Exit code 1 if a step failed, 2
# without a GPU.
set -uo pipefail
cd "$(dirname "$0")" || exit 2
# RONDO_TEST_DEVICE: another library of devices, to try this script without a GPU.
export LD_LIBRARY_PATH=$PWD RONDO_TEST_DEVICE=${RONDO_TEST_DEVICE:-$PWD/librondo_cuda.so}
export RONDO_DEVICE_LIBRARY=$RONDO_TEST_DEVICE
results=$PWD/results.txt
failed=0
: >"$results"
say() { echo "$*" | tee -a "$results"; }

say "Rondo $(cat version), $(date -u +%Y-%m-%dT%H:%MZ)"
if [ "$RONDO_TEST_DEVICE" != "$PWD/librondo_cuda.so" ]; then
  say "on $RONDO_TEST_DEVICE: no figure below is of a GPU"
elif ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >>"$results" 2>&1; then
  say "no GPU, or no driver: nothing was run"
  exit 2
else
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader | tee -a "$results"
fi

# step SECONDS NAME COMMAND...: runs it, for so long at most; its output is in results.txt.
whole=540
step() {
  local limit=$1 name=$2 code=0 start=$SECONDS left=$((whole - SECONDS))
  shift 2
  if [ "$left" -lt 5 ]; then
    say "FAILED: $name was not run, $whole s are over"
    failed=1
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  echo "--- $name: $*" >>"$results"
  timeout --kill-after=5 "$limit" "$@" >>"$results" 2>&1 || code=$?
  case $code in
    0) say "passed: $name ($((SECONDS - start)) s)" ;;
    124 | 137) say "FAILED: $name did not end within $limit s" ;;
    *) say "FAILED: $name, exit code $code" ;;
  esac
  [ "$code" = 0 ] || failed=1
}

step 60 "the passes of every dtype and op, bit for bit" ./device_folds_test
step 60 "two processes, every dtype and op" ./device_calls_test -tc="every dtype*"
step 40 "order of streams" ./device_calls_test -tc="calls wait*,more calls*"
step 90 "every collective, 1 to 4 processes" ./device_calls_test -tc="every collective*"
step 60 "every collective, threads" ./device_threads_test
step 60 "8 processes, pieces, lists, messages" ./device_calls_test -tc="8 processes,buffers*,lists,messages,calls on host*"
step 40 "messages on streams" ./device_messages_test -tc="a ring of*,a batch*,send and*,a message that is*"
step 60 "errors, mismatch, abort, death, destroy" ./device_errors_test
step 60 "memory that all ranks map: processes" ./device_islands_test -tc="every collective on proc*,every dtype*"
step 40 "memory that all ranks map: pieces, order" ./device_islands_test -tc="calls of many*,many calls*,staged and*"
step 40 "memory that all ranks map: threads" ./device_island_threads_test
step 60 "a ring" ./device_ring_test -tc="every *,many pieces*,calls by*"
step 40 "memory that all ranks map: failures" ./device_islands_test -tc="a failure*,calls that differ*,device memory*"
for ranks in 4 8; do
  step 30 "all_reduce of 256 MiB, $ranks threads on one GPU: 0.80 of copies" \
    ./bar.sh 0.80 ./rondo-bench --device cuda --inproc --ranks "$ranks" --sizes "${BAR_SIZE:-256M}" --placement in \
    --buffers registered
done
gpus=$(nvidia-smi -L 2>/dev/null | grep -c .)
if [ "$gpus" -gt 1 ]; then
  for algorithm in auto ring; do
    step 60 "all_reduce of $gpus GPUs, $algorithm" ./rondo-bench --device cuda --ranks "$gpus" --sizes "${BAR_SIZE:-256M}" \
      --placement in --buffers registered --algorithm "$algorithm"
  done
else
  say "not run: peers, there is one GPU"
fi
step 60 "GB/s of the passes against copies" ./device_bench "${BENCH_MIB:-256}"
if command -v compute-sanitizer >/dev/null; then
  step 50 "memcheck" compute-sanitizer --error-exitcode 1 ./device_folds_test
else
  say "not run: memcheck, there is no compute-sanitizer here"
fi
exit "$failed"
