#!/usr/bin/env bash
# rondo-run --hosts over ssh (two_hosts.sh).
#   tests/launchers/ssh_hosts.sh RONDO_RUN PROGRAM    PROGRAM: examples/all_reduce
set -euo pipefail
source tools/lib/suite.sh

rondo_run=$1 program=$2
source tests/launchers/two_hosts.sh
start_hosts

# run OPTIONS...: from host 0.
run() {
  on 0 env -i PATH="$PATH" HOME="${HOME:-/root}" timeout -s KILL 60 "$rondo_run" \
    --hosts "${HOSTS:-root@10.78.0.1:2,10.78.0.2:2}" --launch-agent "ssh -F $folder/ssh_config" "$@" 2>&1
}

sums() {
  local output
  if ! output=$(run "$@" "$program") ||
    (($(grep -cE 'rank [0-3] of 4: every sum is 10$' <<<"$output") != 4)); then
    echo "$output"
    return 1
  fi
}

sums_from_the_other_host() { HOSTS=10.78.0.2:1,10.78.0.1:3 sums; }
sums_without_a_secret() { sums --env RONDO_INSECURE=1; }
sums_encrypted() { sums --env RONDO_ENCRYPT=1; }

# Each host's ranks are a node of their own to Rondo, not only to the launcher: the links between them are TCP.
links_between_hosts() {
  local output
  output=$(run --env RONDO_DEBUG=info "$program") || return 1
  echo "$output" | grep -qi tcp
}

codes_pass() {
  local output status=0
  # shellcheck disable=SC2016  # the ranks' shell expands it
  output=$(run sh -c '[ $RANK = 3 ] && exit 7; exec sleep 300.125') || status=$?
  ((status == 7)) && grep -q "host 10.78.0.2 " <<<"$output" && none_left
}

unreachable_host() {
  local output status=0
  output=$(HOSTS=10.78.0.1:1,10.78.0.99:1 run sleep 300.125) || status=$?
  ((status == 255)) && grep -q "host 10.78.0.99 " <<<"$output" && none_left
}

# Nothing of "sleep 300.125" runs any more, on either host: both share this machine's processes.
none_left() {
  for _ in {1..100}; do
    pgrep -f '^sleep 300[.]125' >/dev/null || return 0
    sleep 0.05
  done
  pgrep -af '^sleep 300[.]125'
  return 1
}

# killed_by SIGNAL: rondo-run; the ranks, and what they started in sessions of their own, end on both hosts.
killed_by() {
  local job
  run sh -c 'setsid sleep 300.125 & exec sleep 300.125' >"$folder/killed.log" &
  for _ in {1..200}; do
    (($(pgrep -cf '^sleep 300[.]125') == 8)) && break
    sleep 0.05
  done
  (($(pgrep -cf '^sleep 300[.]125') == 8)) || { cat "$folder/killed.log"; return 1; }
  job=$(pgrep -f "^$rondo_run --hosts")
  kill "-$1" "$job"
  none_left
}

check "ssh: sums of 4 ranks on 2 hosts" sums
check "ssh: the first host is the other one" sums_from_the_other_host
check "ssh: between hosts ranks use TCP" links_between_hosts
check "ssh: with RONDO_INSECURE instead of the secret that rondo-run makes" sums_without_a_secret
check "ssh: with RONDO_ENCRYPT" sums_encrypted
check "ssh: a failed rank's code, and the others end" codes_pass
check "ssh: a host that cannot be reached" unreachable_host
check "ssh: rondo-run killed with -9" killed_by KILL
check "ssh: rondo-run ended with SIGTERM" killed_by TERM
finish_checks
