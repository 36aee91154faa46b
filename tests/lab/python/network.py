"""Ranks in network namespaces of this machine, which stand for hosts: they have TCP between them. Wants root."""

import collections
import fcntl
import math
import multiprocessing
import os
import select
import struct
import subprocess
import time

SUBNET = "10.78.0"


def run_ranks(command, hosts, ranks=1, mbit=None, environment=None, round_trip_ms=0):
    """Runs `ranks` ranks of the command in each host, and returns what rank 0 has printed. mbit: what a host sends and
    receives at most. round_trip_ms: a process in the place of the bridge holds each packet for half of that. SystemExit
    where a rank has failed."""
    names = [f"rondo-{os.getpid()}-{host}" for host in (*range(hosts), "bridge")]
    bridge = names.pop()
    relay, tunnels = None, []
    try:
        for name in (*names, bridge):
            _run(f"ip netns add {name}")
        _run(f"ip -n {bridge} link add bridge0 type bridge")
        _run(f"ip -n {bridge} link set bridge0 up")
        for host, name in enumerate(names):
            if round_trip_ms:
                tunnels.append(_tunnel(f"rondo{host}"))
                _run(f"ip link set rondo{host} netns {name} name eth0")
            else:
                _run(f"ip -n {bridge} link add port{host} type veth peer name eth0 netns {name}")
                _run(f"ip -n {bridge} link set port{host} master bridge0 up")
            _run(f"ip -n {name} addr add {SUBNET}.{host + 1}/24 dev eth0")
            _run(f"ip -n {name} link set eth0 up")
            _run(f"ip -n {name} link set lo up")
            if mbit and not round_trip_ms:
                burst = max(65536, mbit * 1000 // 8 * 3)
                for space, port in ((name, "eth0"), (bridge, f"port{host}")):
                    _run(f"tc -n {space} qdisc add dev {port} root tbf rate {mbit}mbit burst {burst} latency 50ms")
        if round_trip_ms:
            forwards = (tunnels, mbit, round_trip_ms / 2000)
            relay = multiprocessing.get_context("fork").Process(target=_relay, args=forwards, daemon=True)
            relay.start()
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
        if relay:
            relay.terminate()
        for tunnel in tunnels:
            os.close(tunnel)
        for name in (*names, bridge):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    if any(codes):
        raise SystemExit(f"some ranks failed: exit codes {codes}")
    return output


def _run(command):
    subprocess.run(command.split(), check=True)


def _tunnel(name):
    """The descriptor of a network interface that a program reads packets from and writes them to."""
    tunsetiff, iff_tun, iff_no_pi = 0x400454CA, 0x0001, 0x1000
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tunnel, tunsetiff, struct.pack("16sH22x", name.encode(), iff_tun | iff_no_pi))
    return tunnel


def _relay(tunnels, mbit, delay):
    """Forwards IPv4 packets between hosts: a host sends and receives `mbit`, packets that would wait for 50 ms for that
    are dropped, and each travels for `delay` seconds more."""
    os.setpriority(os.PRIO_PROCESS, 0, -20)  # a network does not wait for the ranks' cores
    byte_seconds = 8e-6 / mbit if mbit else 0.0
    sent, received = ([0.0] * len(tunnels) for _ in range(2))  # when what was taken has been sent, and received
    queues = [collections.deque() for _ in tunnels]
    poll = select.poll()
    for tunnel in tunnels:
        poll.register(tunnel, select.POLLIN)
    while True:
        waits = [queue[0][0] for queue in queues if queue]
        ready = poll.poll(max(0, math.ceil((min(waits) - time.perf_counter()) * 1e3)) if waits else None)
        now = time.perf_counter()
        for tunnel, _ in ready:
            packet, host = os.read(tunnel, 65536), tunnels.index(tunnel)
            to = packet[19] - 1  # the last byte of the destination
            if packet[0] >> 4 != 4 or not 0 <= to < len(tunnels) or sent[host] > now + 0.05:
                continue
            took = len(packet) * byte_seconds
            sent[host] = max(now, sent[host]) + took
            received[to] = max(sent[host] + delay, received[to] + took)
            queues[to].append((received[to], packet))
        for tunnel, queue in zip(tunnels, queues, strict=True):
            while queue and queue[0][0] <= now:
                os.write(tunnel, queue.popleft()[1])
