#!/usr/bin/env bash
# run.sh [PART...]: checks and measures Rondo on the GPUs of this machine, with nothing but their driver: each step a
# process of its own with a limit, in the order that teaches most in 9 minutes (WHOLE: other seconds). The parts: probes
# (what the library takes for granted of a GPU), kernels, mps (processes whose kernels run at once, by a daemon of its
# own: right, then how fast), threads, peers (a GPU a rank), memcheck, failures, nccl (beside PyTorch's), calls, host (the
# same machine without its GPU); none: all of them.
# results.txt (RESULTS: another file) has all output; a line for each step is printed, why it failed, and at the end
# tables of the times for docs/gpu.md, and of the lanes of a kernel.
# Exit code 1 if a step failed, 2 if nothing could be run.
set -uo pipefail
cd "$(dirname "$0")" || exit 2
results=${RESULTS:-$PWD/results.txt}
parts=" ${*:-probes kernels mps threads peers memcheck failures nccl calls host} "
whole=${WHOLE:-540}
failed=0 gone=0
: >"$results" || exit 2
say() { echo "$*" | tee -a "$results"; }

say "Rondo $(cat version), $(date -u +%Y-%m-%dT%H:%MZ), parts:$parts"
uname -a >>"$results"

# The C++ runtime and OpenSSL: this machine's where they will do, since those of the bundle may want a newer C library.
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
  tail -n "+$((begin + 1))" "$results" | grep -E '^probe |^# (device|all_reduce of [0-9])|^#.* (reach|multiprocessors)|^copy:|sources.*GB/s' |
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

# time_of SECONDS NAME COMMAND...: a step that prints times of all_reduces in place of $sizes bytes; they are a row.
sizes="8 65536 1048576 ${BAR_BYTES:-268435456}"
rows=""
time_of() {
  local begin size row="| $2 |"
  begin=$(wc -l <"$results")
  step "$@"
  for size in $sizes; do
    # The first number behind the size: with --placement in there is one time.
    row+=" $(tail -n "+$((begin + 1))" "$results" | awk -v size="$size" '$1 == size {
      for (i = 2; i <= NF; ++i) if ($i ~ /^[0-9.]+$/) { found = $i; break } } END { print found == "" ? "-" : found }') |"
  done
  row+=" $(tail -n "+$((begin + 1))" "$results" | sed -n 's/^# all_reduce of .*: \([0-9.]*\) of copies.*/\1/p' | tail -1) |"
  rows+=$row$'\n'
}
# lanes_of SECONDS NAME COMMAND...: a step that prints rows of the table of lanes.
lanes=""
lanes_of() {
  local begin
  begin=$(wc -l <"$results")
  step "$@"
  lanes+=$(tail -n "+$((begin + 1))" "$results" | grep '^| ')
}
# shellcheck disable=SC2317 # the steps' shells call it
bench() { ./rondo-bench --device cuda --placement in --sizes "${sizes// /,}" "$@"; }
export -f bench
export sizes

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

if has probes; then
  for probe in 01 02 03 04 05 06 07 08; do
    step 40 "probe $(./device_probe_test -ltc -tc="$probe*" | grep "^$probe")" ./device_probe_test -tc="$probe*"
  done
fi
if has kernels; then
  step 60 "the passes of every dtype and op, bit for bit" ./device_folds_test
  step 60 "GB/s of the passes against copies: 0.90 for 2 sources, 0.85 for 8" ./device_bench "${BENCH_MIB:-256}"
  lanes_of 40 "when lanes of one kernel begin and end, and where" ./device_lanes 4 "${LANES_MIB:-64}" 8 16 32 66 128
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
    step 60 "memory that all ranks map: processes under MPS" ./device_islands_test
    step 60 "every collective, posts, the ring, under MPS" ./device_collectives_test -tc="every *,posts up*,by posts*,calls of*"
    step 60 "order of calls, graphs, by processes under MPS" ./device_calls_test
    for ranks in 2 4 8; do
      for buffers in registered plain; do
        bar=0
        if [ "$ranks $buffers" = "4 registered" ]; then bar=0.80; fi
        time_of 30 "$ranks processes on one GPU, $buffers" ./bar.sh "$bar" bash -c "bench --ranks $ranks --buffers $buffers"
      done
    done
    time_of 30 "4 processes on one GPU, plain, windows of 512 MiB" \
      env RONDO_DEVICE_WINDOW_BYTES=536870912 bash -c "bench --ranks 4 --buffers plain"
    for ranks in 2 4 8; do
      time_of 30 "$ranks processes on one GPU, registered, in a graph" ./device_graphs "$ranks" 8 65536
    done
    for blocks in 8 16 64 128; do
      time_of 20 "4 processes on one GPU, registered, $blocks blocks a rank" \
        env RONDO_DEVICE_BLOCKS=$blocks bash -c "bench --ranks 4 --buffers registered"
    done
    echo quit | limited 15 nvidia-cuda-mps-control >>"$results" 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  else
    say "not run: processes whose kernels run at once, there is no nvidia-cuda-mps-control here"
  fi
fi
if has threads; then
  for ranks in 4 8; do
    time_of 30 "$ranks threads on one GPU, registered" \
      ./bar.sh 0.80 bash -c "bench --inproc --ranks $ranks --buffers registered"
  done
fi
gpus=$(timeout 20 nvidia-smi -L 2>/dev/null | grep -c .)
if has peers; then
  if [ "$gpus" -gt 1 ]; then
    step 60 "every collective, processes on all GPUs in turn" ./device_collectives_test -tc="processes in turn*"
    step 60 "every collective, threads on all GPUs in turn" ./device_threads_test -tc="threads in turn*"
    for algorithm in auto ring; do
      for buffers in registered plain; do
        time_of 30 "$gpus GPUs, $buffers, $algorithm" \
          bash -c "bench --ranks $gpus --buffers $buffers --algorithm $algorithm"
      done
    done
    time_of 30 "$gpus GPUs, registered, in a graph" ./device_graphs "$gpus" 8 65536
  else
    say "not run: peers, there is one GPU"
  fi
fi
if has memcheck; then
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
  if [ -n "$sanitizer" ]; then
    # What the driver refuses is asked for on purpose.
    check=("$sanitizer" --report-api-errors no --error-exitcode 1)
    step 30 "memcheck, every dtype and op" "${check[@]}" ./device_folds_test
    step 30 "memcheck, calls of threads" "${check[@]}" ./device_threads_test -tc="calls *,after *,different *"
    step 30 "racecheck, every dtype and op" "${check[@]}" --tool racecheck ./device_folds_test
    step 30 "racecheck, calls of threads" "${check[@]}" --tool racecheck ./device_threads_test -tc="calls of*"
  else
    say "not run: memcheck, there is no compute-sanitizer here"
  fi
fi
if has failures; then
  step 60 "errors, mismatch, abort, death, destroy" ./device_errors_test
fi
if has nccl; then
  if python3 -c "import torch, sys; sys.exit(not torch.cuda.is_available())" 2>>"$results"; then
    # shellcheck disable=SC2086 # a size each
    time_of 60 "$((gpus > 1 ? gpus : 4)) ranks, NCCL" python3 nccl.py "$((gpus > 1 ? gpus : 4))" $sizes
  else
    say "not run: beside NCCL, python3 has no PyTorch with CUDA here"
  fi
fi
if has calls; then
  step 60 "processes, every dtype and op" ./device_collectives_test -tc="every dtype*"
  step 90 "every collective, 1 to 4 processes" ./device_collectives_test -tc="every collective*"
  step 60 "8 processes, pieces" ./device_collectives_test -tc="8 processes,calls of*,staged calls*"
  step 90 "every collective, threads" ./device_threads_test
  step 60 "order of streams and calls, lists, batches" ./device_calls_test -tc="calls *,many *,staged *,lists are*,batches*"
  step 40 "messages on streams" ./device_messages_test -tc="a ring of*,a batch*,send and*,host memory*,a message that is*,a receive in*"
  step 40 "device memory" ./device_islands_test -tc="device memory*"
  step 40 "staged calls over TCP" ./rondo-bench --device cuda --transport tcp --sizes "${BAR_SIZE:-256M}"
fi
if has host; then
  for transport in shm tcp; do
    step 30 "calls on host memory, $transport" ./rondo-bench --transport "$transport" --sizes 8,16M
  done
fi
if [ -n "$rows" ]; then
  say ""
  say "| all_reduce in place, us |$(for size in $sizes; do printf ' %s |' "$(numfmt --to=iec-i --suffix=B "$size")"; done) of copies |"
  say "|---|$(for size in $sizes; do printf -- '---|'; done)---|"
  say "${rows%$'\n'}"
fi
if [ -n "$lanes" ]; then
  say ""
  say "| lanes, us since the first has begun | first | 10 % | 20 % | 30 % | 40 % | 50 % | 60 % | 70 % | 80 % | 90 % | last |"
  say "|---|---|---|---|---|---|---|---|---|---|---|---|"
  say "$lanes"
fi
exit "$failed"
