#!/usr/bin/env bash
# Every measurement of docs/torch.md, one after the other, in about 8 minutes. The machine must be quiet.
#   tests/lab/torch/run_all.sh PYTHON FOLDER    PYTHON: one that has rondo, torch and deepspeed; FOLDER: for the tables
# Needs root, for network namespaces of its own: gloo and Rondo run under reno there, which serves gloo better than BBR.
set -euo pipefail
cd "$(dirname "$0")/../../.."
source tools/lib/build.sh

python=$1 folder=$2
run_bazel build //bench:rondo-bench
bench=$(bazel_bin)/bench/rondo-bench
mkdir -p "$folder"

# table NAME COMMAND...: what the command prints, in FOLDER/NAME.txt; a bound that it misses does not end the rest.
table() {
  local status=0
  timeout 200 "${@:2}" >"$folder/$1.txt" 2>"$folder/$1.err" || status=$?
  echo "$1: exit code $status"
  cat "$folder/$1.txt"
}
# shellcheck disable=SC2016  # the new shell expands it
reno=(unshare --net sh -c 'ip link set lo up && sysctl -q -w net.ipv4.tcp_congestion_control=reno && exec "$@"' sh)

export OMP_NUM_THREADS=1
"$python" -m rondo.torch.build >/dev/null
table overhead "$python" tests/lab/torch/all_reduce.py --bench "$bench"
table all_reduce_2 "${reno[@]}" "$python" tests/lab/torch/all_reduce.py
table all_reduce_2_tcp env RONDO_TRANSPORT=tcp "${reno[@]}" "$python" tests/lab/torch/all_reduce.py
table all_reduce_4 "${reno[@]}" "$python" tests/lab/torch/all_reduce.py --ranks 4
for dtype in float32 bfloat16; do
  for ranks in 2 4; do
    table "operators_${dtype}_$ranks" "$python" tests/lab/torch/all_reduce.py --ranks "$ranks" --dtype "$dtype" \
      --ways deepspeed,operator,registered --sizes 1024,4096,16384,65536,1048576,16777216
  done
done
table ddp_step "${reno[@]}" "$python" tests/lab/torch/ddp_step.py
table tensor_parallel "${reno[@]}" "$python" tests/lab/torch/tensor_parallel.py
table tensor_parallel_hosts "$python" tests/lab/torch/tensor_parallel.py --hosts 2
