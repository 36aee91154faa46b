#!/usr/bin/env bash
# C++ and NumPy programs under torchrun.
#   tests/launchers/torchrun.sh PROGRAM VENV    PROGRAM: examples/all_reduce; VENV: has torch and the package rondo
set -euo pipefail
source tools/lib/suite.sh
source tests/launchers/starts.sh

program=$1 torchrun=$2/bin/torchrun
sum=tests/launchers/sum.py

# Two agents of one rank each, which find each other by torch's own store. To torchrun they are two hosts; the ranks find
# that they are on one, and listen on loopback.
c10d_rendezvous() {
  local port=$1 first status=0 log
  log=$(mktemp)
  local agent=("$torchrun" --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --rdzv-id "job$port")
  clean "${agent[@]}" "$sum" >>"$log" 2>&1 &
  first=$!
  clean "${agent[@]}" "$sum" >>"$log" 2>&1 || status=$?
  wait "$first" || status=$?
  if ((status != 0)) || (($(grep -cE 'rank [01] of 2: sum 3$' "$log") != 2)); then
    cat "$log"
    return 1
  fi
  rm -f "$log"
}

# The agent ends the other rank by SIGTERM, maybe before it has said what it was told.
killed_worker() {
  local output status=0
  output=$(clean "$torchrun" --standalone --nproc-per-node 2 tests/launchers/restart.py 2>&1) || status=$?
  if ((status == 0)) || grep -q "sum 2" <<<"$output"; then
    echo "$output"
    return 1
  fi
}

for world in 1 2 4; do
  check "torchrun --standalone, world $world" sums "$world" "$torchrun" --no-python --standalone --nproc-per-node "$world" "$program"
done
check "torchrun --standalone, NumPy" sums 2 "$torchrun" --standalone --nproc-per-node 2 "$sum"
check "torchrun --master-port" sums 2 "$torchrun" --no-python --nnodes 1 --nproc-per-node 2 --master-port 12355 "$program"
check "torchrun --master-port, NumPy" sums 2 "$torchrun" --nnodes 1 --nproc-per-node 2 --master-port 12356 "$sum"
check "torchrun, c10d rendezvous of two agents" c10d_rendezvous 12357
check "torchrun, a killed worker" killed_worker
check "torchrun --max-restarts, after a killed worker" prints 2 '^rank [01] of 2: sum 2$' \
  "$torchrun" --standalone --nproc-per-node 2 --max-restarts 1 tests/launchers/restart.py
finish_checks
