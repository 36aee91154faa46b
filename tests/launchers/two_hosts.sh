# shellcheck shell=bash
# Two network namespaces with host names of their own, each with an sshd, count as hosts: 10.78.0.1 and 10.78.0.2. For the
# files of this folder; start_hosts makes them in $folder, which is removed with them when the script ends. Needs root,
# iproute2 and openssh-server.

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
  unshare --net --uts sh -c 'hostname rondo-$1 && ip link set lo up && : >"$0" && exec sleep 600' "$folder/up.${#holders[@]}" "${#holders[@]}" &
  holders+=($!)
  disown  # no word when it is killed at the end
  set +m
  until [[ -e $folder/up.$((${#holders[@]} - 1)) ]]; do
    kill -0 "${holders[-1]}" || { echo "cannot make a network namespace: run as root" >&2; exit 1; }
    sleep 0.02
  done
}

# on HOST COMMAND...: HOST is 0 or 1.
on() { nsenter --net --uts --target "${holders[$1]}" "${@:2}"; }

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
  until grep -qs "Server listening" "$folder/sshd.$1.log"; do sleep 0.02; done
}

start_hosts() {
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
}
