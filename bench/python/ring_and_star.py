"""Ring against parameter server: the same all_reduce by the plans `ring` and `star`, between hosts of equal bandwidth.

sudo python ring_and_star.py [--worlds 2,4,6,8] [--bytes 4194304] [--mbit 200] [--plot ring-and-star.svg]

In `star`, rank 0 is the server: it receives every rank's array, reduces, and sends the result to all, so its link carries
size - 1 arrays each way, and time grows with the number of ranks. In `ring` every link carries less than 2 arrays. Hosts
are network namespaces of this machine, whose links are limited: that wants root, iproute2 and the kernel's tbf. The exit
code is 1 if the ring is not the faster one in the largest world.
"""

import argparse
import os
import subprocess
import sys
import time

PREFIX = "rondo-host"
PORT = 29511


def rank_main(size_bytes: int, repeats: int) -> None:
    """One rank, in its namespace. Rank 0 prints the least seconds of ring and star."""
    import numpy as np

    import rondo

    group = rondo.init()
    x = np.ones(size_bytes // 4, np.float32)
    for algorithm in ("ring", "star"):
        times = []
        for _ in range(repeats + 1):  # the first makes connections
            x[:] = group.rank
            group.barrier()
            begin = time.perf_counter()
            group.all_reduce(x, algorithm=algorithm)
            times.append(time.perf_counter() - begin)
            assert (x == group.size * (group.size - 1) / 2).all()
        if group.rank == 0:
            print(min(times[1:]), flush=True)
    group.barrier()  # nobody leaves while data is still on its way to others


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def make_hosts(count: int, mbit: int) -> None:
    """Namespaces on one bridge. What a host sends leaves through its end of the cable, what it receives through the
    bridge's end; both are limited."""
    limit = f"root tbf rate {mbit}mbit burst 160kb latency 50ms"
    ip(f"netns add {PREFIX}-bridge")
    bridge = f"-n {PREFIX}-bridge"
    ip(f"{bridge} link add bridge0 type bridge")
    ip(f"{bridge} link set bridge0 up")
    for host in range(count):
        name = f"{PREFIX}-{host}"
        ip(f"netns add {name}")
        ip(f"{bridge} link add port{host} type veth peer name eth0 netns {name}")
        ip(f"{bridge} link set port{host} master bridge0 up")
        ip(f"-n {name} addr add 10.77.0.{host + 1}/24 dev eth0")
        ip(f"-n {name} link set eth0 up")
        ip(f"-n {name} link set lo up")
        subprocess.run(f"tc -n {name} qdisc add dev eth0 {limit}".split(), check=True)
        subprocess.run(f"tc -n {PREFIX}-bridge qdisc add dev port{host} {limit}".split(), check=True)


def remove_hosts(count: int) -> None:
    for name in ("bridge", *range(count)):
        subprocess.run(["ip", "netns", "del", f"{PREFIX}-{name}"], stderr=subprocess.DEVNULL, check=False)


def measure(world: int, options) -> list[float]:
    """Seconds of ring and of star among `world` hosts."""
    ranks = []
    for rank in range(world):
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(PORT),
            "RONDO_INSECURE": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, __file__, "--rank", "--bytes", str(options.bytes), "--repeats", str(options.repeats)]
        ranks.append(
            subprocess.Popen(
                ["ip", "netns", "exec", f"{PREFIX}-{rank}", *command],
                env=environment, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        )
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    if any(codes):
        raise SystemExit(f"of {world} ranks some failed: exit codes {codes}")
    return [float(line) for line in outputs[0].split()]


def draw(path: str, worlds: list[int], times: list[list[float]], options) -> None:
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--plot wants matplotlib: pip install matplotlib") from None
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rondo"})  # text as text; the same file twice
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.2))
    for index, (name, color) in enumerate((("ring", "#0072b2"), ("star (parameter server)", "#d55e00"))):
        axis.plot(worlds, [1000 * pair[index] for pair in times], marker="o", color=color, label=name)
    title = f"all_reduce of {options.bytes / 2**20:g} MiB, {options.mbit} Mbit/s a host"
    axis.set(xlabel="hosts, one rank each", ylabel="milliseconds", xticks=worlds, ylim=0, title=title)
    axis.grid(True, alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,4,6,8")
    parser.add_argument("--bytes", type=int, default=4 << 20)
    parser.add_argument("--mbit", type=int, default=200, help="of each host, each way")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", help="an SVG file")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank_main(options.bytes, options.repeats)
    if os.geteuid() != 0:
        raise SystemExit("ring_and_star.py makes network namespaces: run it as root")
    worlds = sorted(map(int, options.worlds.split(",")))
    try:
        make_hosts(worlds[-1], options.mbit)
        times = [measure(world, options) for world in worlds]
    finally:
        remove_hosts(worlds[-1])
    print("hosts   ring ms   star ms")
    for world, (ring, star) in zip(worlds, times):
        print(f"{world:5}  {1000 * ring:8.1f}  {1000 * star:8.1f}")
    if options.plot:
        draw(options.plot, worlds, times, options)
    ring, star = times[-1]
    sys.exit(0 if ring < star else 1)


if __name__ == "__main__":
    main()
