#!/usr/bin/env bash
# rondo-bench --device cuda over a device without a GPU: right results by processes, threads and staged; what it says of the
# device; an error that says what to do where there is no driver. On any machine: output that is lost is a failure.
set -euo pipefail
bench=$PWD/bench/rondo-bench
export RONDO_DEVICE_LIBRARY=$PWD/tests/support/fake_cuda/libcuda.so.1

fail() {
  echo "FAIL: $1"
  echo "$out"
  exit 1
}
# bench OPTION...: its output is in `out`.
bench() { out=$("$bench" --device cuda --sizes 64K,1M -n 5 -w 1 "$@" 2>&1) || fail "exit code $? of --device cuda $*"; }
says() { grep -qE "$1" <<<"$out" || fail "not said: $1"; }

on_device='^# device: fake device \(no GPU\), 2 devices; [0-9]+ MiB of its memory a rank; copies of 1048576 B: [0-9.]+ GB/s'
bench --ranks 2
says '^# Wrong values: 0'
says "$on_device"
says '^# all_reduce of 1048576 B, 2 ranks, in place: [0-9.]+ of copies'
bench --ranks 3 --inproc --placement in --buffers registered --collective all
says '^# Wrong values: 0'
says "$on_device"
bench --ranks 2 --transport tcp
says '^# Wrong values: 0'

export RONDO_DEVICE_LIBRARY=/nowhere/libcuda.so.1
for how in --no-limit --inproc; do
  if out=$("$bench" --device cuda --sizes 8 --ranks 2 "$how" 2>&1); then fail "it succeeds without a device"; fi
  says 'no GPU can be used: /nowhere/libcuda.so.1.*RONDO_DEVICE_LIBRARY'
done

for output in "--help" "machine" "--ranks 2 --sizes 8 -n 1 -w 0" "--inproc --sizes 8 -n 1 -w 0"; do
  # shellcheck disable=SC2086  # words
  out=$("$bench" $output 2>&1 >/dev/full) && fail "exit code 0 of $output on a full disk"
  says '^rondo-bench: standard output cannot be written'
done
"$bench" machine >&- || fail "exit code $? with standard output closed"
