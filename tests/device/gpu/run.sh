#!/usr/bin/env bash
# run.sh [PART...]: checks and measures Rondo on the first GPU of this machine, with nothing but its driver: each step a
# process of its own with a limit, in the order in which a failure says most. The parts: host (the same machine without its
# GPU), probes (what the library takes for granted of a GPU), kernels, calls, failures, bars, peers, mps (processes whose
# kernels run at once, by a daemon of its own), memcheck; none: all of them. A run takes 9 minutes at most (WHOLE: other seconds).
# results.txt (RESULTS: another file) has all output; a line for each step is printed, and why it failed.
# Exit code 1 if a step failed, 2 if nothing could be run.
set -uo pipefail
cd "$(dirname "$0")" || exit 2
results=${RESULTS:-$PWD/results.txt}
parts=" ${*:-host probes kernels calls failures bars peers mps memcheck} "
whole=${WHOLE:-540}
failed=0 gone=0
: >"$results" || exit 2
say() { echo "$*" | tee -a "$results"; }

say "Rondo $(cat version), $(date -u +%Y-%m-%dT%H:%MZ), parts:$parts"
uname -a >>"$results"

# The C++ runtime and libcrypto: this machine's where they will do, since those of the bundle may want a newer C library.
# What was there stays behind them: the driver may lie in a folder of its own.
given=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Each program, since each asks for symbols of its own.
starts() {
  local program
  LD_LIBRARY_PATH=$1$given ./rondo-bench --help || return 1
  for program in ./device_*_test; do LD_LIBRARY_PATH=$1$given "$program" --version || return 1; done
}
found=""
for libraries in "$PWD" "$PWD:$PWD/crypto" "$PWD:$PWD/cxx" "$PWD:$PWD/crypto:$PWD/cxx"; do
  if starts "$libraries" >/dev/null 2>&1; then
    found=$libraries
    break
  fi
done
if [ -z "$found" ]; then
  say "the programs do not start on this machine:"
  say "$(starts "$PWD:$PWD/crypto:$PWD/cxx" 2>&1 | grep -v '^\[doctest\]' | tail -5)"
  exit 2
fi
# RONDO_TEST_DEVICE: another driver, to try this script without a GPU.
export LD_LIBRARY_PATH=$found$given RONDO_TEST_DEVICE=${RONDO_TEST_DEVICE:-libcuda.so.1}
export RONDO_DEVICE_LIBRARY=$RONDO_TEST_DEVICE PROBE_MIB=${PROBE_MIB:-5120}
if [ "$RONDO_TEST_DEVICE" != libcuda.so.1 ]; then say "on $RONDO_TEST_DEVICE: no figure below is of a GPU"; fi

# limited SECONDS COMMAND...: as timeout does it; but a process that hangs in the driver, which no signal ends, is left
# behind after 15 s more.
limited() {
  local limit=$1 pid until
  shift
  timeout --kill-after=5 "$limit" "$@" &
  pid=$!
  until=$((SECONDS + limit + 15))
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$SECONDS" -ge "$until" ]; then return 137; fi
    sleep 0.1
  done
  wait "$pid"
}
answers() { limited 60 ./device_probe_test -tc="01*"; }

# step SECONDS NAME COMMAND...: runs it, for so long at most; its output is in the results.
step() {
  local limit=$1 name=$2 code=0 start=$SECONDS left=$((whole - SECONDS)) begin
  shift 2
  if [ "$gone" = 1 ] || [ "$left" -lt 5 ]; then
    say "FAILED: $name was not run: $([ "$gone" = 1 ] && echo "the GPU does not answer" || echo "$whole s are over")"
    failed=1
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  echo "--- $name: $*" >>"$results"
  begin=$(wc -l <"$results")
  limited "$limit" "$@" >>"$results" 2>&1 || code=$?
  # A name that no test case has is no failure to doctest.
  if tail -n "+$((begin + 1))" "$results" | grep -qE '^\[doctest\] test cases: +0 \|'; then
    say "no test case has the name that $name asks for"
    code=3
  fi
  case $code in
    0) say "passed: $name ($((SECONDS - start)) s)" ;;
    124 | 137) say "FAILED: $name did not end within $limit s" ;;
    *) say "FAILED: $name, exit code $code" ;;
  esac
  # What it has found, and why it failed.
  tail -n "+$((begin + 1))" "$results" | grep -E '^probe |^# (device|all_reduce of [0-9])|^#.* reach |^copy:|sources.*GB/s' |
    sed 's/^/    /' | head -20
  [ "$code" != 0 ] || return 0
  failed=1
  tail -n "+$((begin + 1))" "$results" | grep -vE '^(passed|FAILED):|ERROR: CHECK' | grep -E 'TEST CASE:|values: |rank [0-9]+:|rror|below|CRASH|terminate' |
    cut -c1-400 | head -12 | sed 's/^/    /'
  if [ "$code" -ge 124 ] && ! answers >>"$results" 2>&1; then
    gone=1
    say "FAILED: the GPU does not answer any more"
  fi
}
has() { [[ $parts == *" $1 "* ]]; }

if ! answers >"$results.first" 2>&1; then
  cat "$results.first" >>"$results"
  say "no GPU can be used, nothing was run: $(grep -m1 -oE 'no GPU can be used.*|rank 0.*|.*not found.*' "$results.first" | cut -c1-300)"
  if command -v nvidia-smi >/dev/null; then say "$(timeout 20 nvidia-smi -L 2>&1 | head -3)"; else say "nvidia-smi is not here"; fi
  exit 2
fi
rm -f "$results.first"
if command -v nvidia-smi >/dev/null; then
  timeout 20 nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader 2>&1 | tee -a "$results"
fi
# A driver that no process uses starts anew for each. It ends with this script, whose end its input is.
# shellcheck disable=SC2034 # its name is that of Bash's variable
coproc holder { exec ./device_probe_test --no-skip -tc="hold*" >/dev/null 2>&1; }

if has host; then
  for transport in shm tcp; do
    step 30 "calls on host memory, $transport" ./rondo-bench --transport "$transport" --sizes 8,16M
  done
fi
if has probes; then
  for probe in 01 02 03 04 05 06 07 08 09; do
    step 40 "probe $(./device_probe_test -ltc -tc="$probe*" | grep "^$probe")" ./device_probe_test -tc="$probe*"
  done
fi
if has kernels; then
  step 60 "the passes of every dtype and op, bit for bit" ./device_folds_test
  step 60 "GB/s of the passes against copies: 0.90 for 2 sources, 0.85 for 8" ./device_bench "${BENCH_MIB:-256}"
fi
if has calls; then
  step 60 "processes, every dtype and op" ./device_collectives_test -tc="every dtype*"
  step 90 "every collective, 1 to 4 processes" ./device_collectives_test -tc="every collective*"
  step 60 "8 processes, pieces" ./device_collectives_test -tc="8 processes,calls of*,staged calls*"
  step 90 "every collective, threads" ./device_threads_test
  step 60 "order of streams and calls, lists, batches" ./device_calls_test -tc="calls *,many *,staged *,lists are*,batches*"
  step 40 "messages on streams" ./device_messages_test -tc="a ring of*,a batch*,send and*,host memory*,a message that is*,a receive in*"
  step 40 "device memory" ./device_islands_test -tc="device memory*"
fi
if has failures; then
  step 60 "errors, mismatch, abort, death, destroy" ./device_errors_test
fi
if has bars; then
  for ranks in 4 8; do
    step 90 "all_reduce of 256 MiB, $ranks threads on one GPU: 0.80 of copies" \
      ./bar.sh 0.80 ./rondo-bench --device cuda --inproc --ranks "$ranks" --sizes "${BAR_SIZE:-256M}" --placement in \
      --buffers registered
  done
  step 40 "staged calls over TCP" ./rondo-bench --device cuda --transport tcp --sizes "${BAR_SIZE:-256M}"
fi
if has peers; then
  gpus=$(timeout 20 nvidia-smi -L 2>/dev/null | grep -c .)
  if [ "$gpus" -gt 1 ]; then
    for algorithm in auto ring; do
      step 60 "all_reduce of $gpus GPUs, $algorithm" ./rondo-bench --device cuda --ranks "$gpus" \
        --sizes "${BAR_SIZE:-256M}" --placement in --buffers registered --algorithm "$algorithm"
    done
  else
    say "not run: peers, there is one GPU"
  fi
fi
# Without MPS processes that share a GPU run their kernels one after the other, and their calls are staged.
if has mps; then
  if PATH=$PATH:/usr/local/nvidia/bin command -v nvidia-cuda-mps-control >/dev/null; then
    export PATH=$PATH:/usr/local/nvidia/bin
    if [ -n "${holder_PID:-}" ]; then
      input=${holder[1]}
      exec {input}>&-
    fi
    folder=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$folder CUDA_MPS_LOG_DIRECTORY=$folder
    nvidia-cuda-mps-control -d >>"$results" 2>&1
    # shellcheck disable=SC2016 # the inner shell's
    step 30 "MPS serves this GPU" bash -c './device_probe_test -tc="01*" | tee /dev/stderr | grep -q "(MPS): yes"'
    step 90 "memory that all ranks map: processes under MPS" ./device_islands_test
    step 90 "every collective, and the ring, by processes under MPS" ./device_collectives_test -tc="every *,posts up*,by posts*,calls of*"
    step 60 "all_reduce by 4 processes under MPS: 0.80 of copies" ./bar.sh 0.80 ./rondo-bench --device cuda --ranks 4 \
      --sizes "8,64K,1M,${BAR_SIZE:-256M}" --placement in --buffers registered
    echo quit | limited 15 nvidia-cuda-mps-control >>"$results" 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  else
    say "not run: processes whose kernels run at once, there is no nvidia-cuda-mps-control here"
  fi
fi
if has memcheck; then
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
  if [ -n "$sanitizer" ]; then
    # What the driver refuses is asked for on purpose.
    check=("$sanitizer" --report-api-errors no --error-exitcode 1)
    step 30 "memcheck, every dtype and op" "${check[@]}" ./device_folds_test
    step 30 "memcheck, calls of threads" "${check[@]}" ./device_threads_test -tc="calls *,after *,different *"
  else
    say "not run: memcheck, there is no compute-sanitizer here"
  fi
fi
exit "$failed"
