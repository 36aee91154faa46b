#!/usr/bin/env bash
# rondo-run --hosts over ssh. Two network namespaces, each with an sshd of its own, count as hosts.
#   tests/launchers/ssh_hosts.sh RONDO_RUN PROGRAM    PROGRAM: examples/all_reduce
# Needs root, iproute2 and openssh-server. Everything it starts ends with it.
set -euo pipefail
source tools/lib/suite.sh

rondo_run=$1 program=$2
PATH=$PATH:/usr/sbin:/sbin
folder=$(mktemp -d)
holders=()
clean_up() {
  local holder
  for holder in "${holders[@]}"; do kill -9 -- "-$holder"; done 2>/dev/null
  rm -rf "$folder"
}
trap clean_up EXIT

# new_namespace: a process group of its own holds it; its process id is the last of holders.
new_namespace() {
  set -m
  # shellcheck disable=SC2016  # the new shell expands it
  unshare --net sh -c 'ip link set lo up && : >"$0" && exec sleep 600' "$folder/up.${#holders[@]}" &
  holders+=($!)
  disown  # no word when it is killed at the end
  set +m
  until [[ -e $folder/up.$((${#holders[@]} - 1)) ]]; do
    kill -0 "${holders[-1]}" || { echo "cannot make a network namespace: run as root" >&2; exit 1; }
    sleep 0.02
  done
}

# on HOST COMMAND...: HOST is 0 or 1.
on() { nsenter --net --target "${holders[$1]}" "${@:2}"; }

start_host() {
  on "$1" ip addr add "10.78.0.$(($1 + 1))/24" dev eth0
  on "$1" ip link set eth0 up
  cat >"$folder/sshd_config.$1" <<CONFIG
ListenAddress 10.78.0.$(($1 + 1))
HostKey $folder/key
AuthorizedKeysFile $folder/key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile $folder/sshd.$1.pid
CONFIG
  mkdir -p /run/sshd
  set -m
  on "$1" /usr/sbin/sshd -D -e -f "$folder/sshd_config.$1" 2>"$folder/sshd.$1.log" &
  holders+=($!)
  disown  # no word when it is killed at the end
  set +m
  until grep -q "Server listening" "$folder/sshd.$1.log"; do sleep 0.02; done
}

new_namespace
new_namespace
on 0 ip link add eth0 type veth peer name eth0 netns "${holders[1]}"
ssh-keygen -q -t ed25519 -N "" -f "$folder/key"
cat >"$folder/ssh_config" <<CONFIG
IdentityFile $folder/key
UserKnownHostsFile /dev/null
StrictHostKeyChecking no
LogLevel ERROR
BatchMode yes
CONFIG
start_host 0
start_host 1

# run OPTIONS...: from host 0.
run() {
  on 0 env -i PATH="$PATH" HOME="${HOME:-/root}" timeout -s KILL 60 "$rondo_run" \
    --hosts "${HOSTS:-root@10.78.0.1:2,10.78.0.2:2}" --launch-agent "ssh -F $folder/ssh_config" "$@" 2>&1
}

sums() {
  local output
  if ! output=$(run --env RONDO_INSECURE=1 "$program") ||
    (($(grep -cE 'rank [0-3] of 4: every sum is 10$' <<<"$output") != 4)); then
    echo "$output"
    return 1
  fi
}

sums_from_the_other_host() { HOSTS=10.78.0.2:1,10.78.0.1:3 sums; }

# Each host's ranks are a node of their own to Rondo, not only to the launcher: the links between them are TCP.
links_between_hosts() {
  local output
  output=$(run --env RONDO_INSECURE=1 --env RONDO_DEBUG=info "$program") || return 1
  echo "$output" | grep -qi tcp
}

refused_without_a_word_on_the_network() {
  local output status=0
  output=$(run "$program") || status=$?
  ((status == 2)) && grep -q "RONDO_SECRET_FILE, or RONDO_INSECURE=1" <<<"$output"
}

codes_pass() {
  local output status=0
  # shellcheck disable=SC2016  # the ranks' shell expands it
  output=$(run --env RONDO_INSECURE=1 sh -c '[ $RANK = 3 ] && exit 7; exec sleep 300.125') || status=$?
  ((status == 7)) && grep -q "host 10.78.0.2 " <<<"$output" && none_left
}

unreachable_host() {
  local output status=0
  output=$(HOSTS=10.78.0.1:1,10.78.0.99:1 run --env RONDO_INSECURE=1 sleep 300.125) || status=$?
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
  run --env RONDO_INSECURE=1 sh -c 'setsid sleep 300.125 & exec sleep 300.125' >"$folder/killed.log" &
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
check "ssh: refused without RONDO_SECRET_FILE or RONDO_INSECURE" refused_without_a_word_on_the_network
check "ssh: a failed rank's code, and the others end" codes_pass
check "ssh: a host that cannot be reached" unreachable_host
check "ssh: rondo-run killed with -9" killed_by KILL
check "ssh: rondo-run ended with SIGTERM" killed_by TERM
finish_checks
