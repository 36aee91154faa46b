"""Ranks in network namespaces of this machine, which stand for hosts: they have TCP between them. Wants root."""

import os
import subprocess

SUBNET = "10.78.0"


def run_ranks(command, hosts, ranks=1, mbit=None, environment=None):
    """Runs `ranks` ranks of the command in each host, and returns what rank 0 has printed. mbit: what a host sends and
    receives at most. SystemExit where a rank has failed."""
    names = [f"rondo-{os.getpid()}-{host}" for host in (*range(hosts), "bridge")]
    bridge = names.pop()
    try:
        for name in (*names, bridge):
            _run(f"ip netns add {name}")
        _run(f"ip -n {bridge} link add bridge0 type bridge")
        _run(f"ip -n {bridge} link set bridge0 up")
        for host, name in enumerate(names):
            _run(f"ip -n {bridge} link add port{host} type veth peer name eth0 netns {name}")
            _run(f"ip -n {bridge} link set port{host} master bridge0 up")
            _run(f"ip -n {name} addr add {SUBNET}.{host + 1}/24 dev eth0")
            _run(f"ip -n {name} link set eth0 up")
            _run(f"ip -n {name} link set lo up")
            if mbit:
                burst = max(65536, mbit * 1000 // 8 * 3)
                for space, port in ((name, "eth0"), (bridge, f"port{host}")):
                    _run(f"tc -n {space} qdisc add dev {port} root tbf rate {mbit}mbit burst {burst} latency 50ms")
        processes = []
        for rank in range(hosts * ranks):
            place = dict(
                RANK=rank, WORLD_SIZE=hosts * ranks, LOCAL_RANK=rank % ranks, LOCAL_WORLD_SIZE=ranks, MASTER_PORT=29711,
                MASTER_ADDR=f"{SUBNET}.1", GLOO_SOCKET_IFNAME="eth0", RONDO_INSECURE=1,
            )  # fmt: skip
            own = {**os.environ, **(environment or {}), **{name: str(value) for name, value in place.items()}}
            inside = ["ip", "netns", "exec", names[rank // ranks], *command]
            processes.append(subprocess.Popen(inside, env=own, stdout=subprocess.PIPE if rank == 0 else None, text=True))
        output = processes[0].communicate()[0]
        codes = [process.wait() for process in processes]
    finally:
        for name in (*names, bridge):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    if any(codes):
        raise SystemExit(f"some ranks failed: exit codes {codes}")
    return output


def _run(command):
    subprocess.run(command.split(), check=True)
