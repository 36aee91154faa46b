#!/usr/bin/env bash
# Open MPI and MPICH over ssh, on two hosts (two_hosts.sh).
#   tests/launchers/mpi_hosts.sh PROGRAM    PROGRAM: examples/all_reduce
set -euo pipefail
source tools/lib/suite.sh
source tests/launchers/starts.sh
source tests/launchers/two_hosts.sh

program=$1
start_hosts
printf '10.78.0.1 slots=2\n10.78.0.2 slots=2\n' >"$folder/openmpi"
printf '10.78.0.1:2\n10.78.0.2:2\n' >"$folder/mpich"
printf '#!/bin/sh\nexec ssh -F %s "$@"\n' "$folder/ssh_config" >"$folder/ssh"
chmod +x "$folder/ssh"

openmpi=(mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$folder/ssh" --mca oob_tcp_if_include eth0
  --hostfile "$folder/openmpi" -x RONDO_INSECURE)
mpich=(mpiexec.hydra -launcher ssh -launcher-exec "$folder/ssh" -f "$folder/mpich" -n 4)

start_fails_by_name() {
  local output status=0
  # Rank 0 never joins, so that the others must give up by themselves.
  # shellcheck disable=SC2016  # the ranks' shell expands it
  output=$(clean nsenter --net --uts --target "${holders[0]}" env RONDO_INSECURE=1 RONDO_START_TIMEOUT_MS=3000 \
    "${openmpi[@]}" -x RONDO_START_TIMEOUT_MS sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] && exec sleep 20; exec "$0"' "$program" 2>&1) || status=$?
  if ((status == 0)) || ! grep -q "rank 0 is missing" <<<"$output"; then
    echo "$output"
    return 1
  fi
}

on_hosts() { sums 4 nsenter --net --uts --target "${holders[0]}" env RONDO_INSECURE=1 "$@"; }
check "mpirun.openmpi on two hosts, by PMIx" on_hosts "${openmpi[@]}" "$program"
check "mpirun.openmpi on two hosts, by MASTER_ADDR" on_hosts "${openmpi[@]}" -x MASTER_ADDR=10.78.0.1 -x MASTER_PORT=29400 "$program"
check "mpiexec.hydra on two hosts" on_hosts "${mpich[@]}" "$program"
check "mpirun.openmpi on two hosts, rank 0 missing" start_fails_by_name
finish_checks
