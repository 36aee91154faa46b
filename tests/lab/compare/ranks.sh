#!/usr/bin/env bash
# Starts ranks of this host as somebody without a launcher of Rondo's does: processes that know their place by the
# environment, in no order and on no core of their own. Rank 0 has the exit code.
#   ranks.sh N PROGRAM [ARGUMENT ...]
set -euo pipefail
export WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1
shift
MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_PORT
for ((rank = WORLD_SIZE - 1; rank > 0; --rank)); do
  RANK=$rank "$@" >/dev/null &
done
RANK=0 "$@"
wait
