#!/usr/bin/env bash
# Programs under a real Slurm of one node, which this script starts and ends.
#   tests/launchers/slurm.sh PROGRAM PYTHON    PROGRAM: examples/all_reduce; PYTHON: one with the package rondo
# Needs root, slurm-wlm and munge.
set -euo pipefail
source tools/lib/suite.sh
source tests/launchers/starts.sh

program=$1 python=$2
PATH=$PATH:/usr/sbin:/sbin
folder=$(mktemp -d)
chmod 755 "$folder"
daemons=()
# The daemons of steps, by the configuration in their environment; a Slurm of this machine is left alone.
step_daemons() {
  local process
  for process in $(pgrep -f '^slurmstepd: '); do
    ! grep -qsz "^SLURM_CONF=$folder/" "/proc/$process/environ" || echo "$process"
  done
}
clean_up() {
  local steps
  scancel --user root 2>/dev/null || true
  for _ in {1..50}; do
    [[ -n $(step_daemons) ]] || break
    sleep 0.1
  done
  mapfile -t steps < <(step_daemons)
  daemons+=("${steps[@]}")
  ((${#daemons[@]} == 0)) || kill -9 "${daemons[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

# Ports of their own, so that a Slurm of this machine is left alone.
node=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf
KEPT=("SLURM_CONF=$SLURM_CONF")
cat >"$SLURM_CONF" <<CONF
ClusterName=rondo
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
SlurmdParameters=config_overrides
CONF
mkdir "$folder/state" "$folder/spool"
head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"

# Each in the foreground of a process of ours, so that it ends with this script.
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
  --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" >"$folder/munged.out" 2>&1 &
daemons+=($!)
disown
until [[ -S $folder/munge.socket ]]; do
  kill -0 "${daemons[-1]}" || { cat "$folder"/munged.*; exit 1; }
  sleep 0.05
done
slurmctld -D >"$folder/slurmctld.out" 2>&1 &
daemons+=($!)
disown
slurmd -D -N "$node" >"$folder/slurmd.out" 2>&1 &
daemons+=($!)
disown
for _ in {1..200}; do
  [[ $(sinfo -h -o %T 2>/dev/null) == idle ]] && break
  sleep 0.1
done
[[ $(sinfo -h -o %T) == idle ]] || { sinfo -R; tail -n 20 "$folder"/slurm*.log; exit 1; }

# The job's script is no rank itself, and each step of it is a job of its own to Rondo, also two at a time.
batch() {
  cat >"$folder/job.sh" <<SCRIPT
#!/bin/sh
#SBATCH --ntasks=2
srun --overlap -n 2 "$program" &
srun --overlap -n 2 "$program"
wait
"$program"
SCRIPT
  clean sbatch --wait --output="$folder/job.out" "$folder/job.sh" || { cat "$folder/job.out"; return 1; }
  (($(grep -c 'of 2: every sum is 3$' "$folder/job.out") == 4 && $(grep -c 'of 1: every sum is 1$' "$folder/job.out") == 1)) || {
    cat "$folder/job.out"
    return 1
  }
}

killed_rank() {
  local output status=0
  # shellcheck disable=SC2016  # the task's shell expands it
  output=$(clean srun --kill-on-bad-exit -n 2 sh -c '[ $SLURM_PROCID = 1 ] && kill -9 $$; exec "$0"' "$program" 2>&1) || status=$?
  ((status != 0)) && ! grep -q "every sum" <<<"$output"
}

for world in 1 2 4; do check "srun -n $world" sums "$world" srun -n "$world" "$program"; done
check "srun --mpi=pmi2" sums 2 srun --mpi=pmi2 -n 2 "$program"
if clean srun --mpi=list 2>&1 | grep -q pmix; then
  check "srun --mpi=pmix" sums 2 srun --mpi=pmix -n 2 "$program"
else
  echo "This Slurm has no PMIx plugin: $(clean srun --mpi=list 2>&1 | tr '\n' ' ')"
fi
check "sbatch: two steps at a time, and the script itself" batch
check "srun, a NumPy program" sums 2 srun -n 2 "$python" tests/launchers/sum.py
check "srun, a task that is killed" killed_rank
finish_checks
