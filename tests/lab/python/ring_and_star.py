"""Ring against parameter server: the same all_reduce by the plans `ring` and `star`, between hosts of equal bandwidth.

sudo python ring_and_star.py [--worlds 2,4,6,8] [--bytes 4194304] [--mbit 200] [--plot ring-and-star.svg]

In `star`, rank 0 is the server: it receives every rank's array, reduces, and sends the result to all, so its link carries
size - 1 arrays each way, and time grows with the number of ranks. In `ring` every link carries less than 2 arrays. Hosts
are network namespaces of this machine, whose links are limited: that wants root, iproute2 and the kernel's tbf. The exit
code is 1 if the ring is not the faster one in the largest world.
"""

import argparse
import os
import sys
import time

import network


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


def measure(world: int, options) -> list[float]:
    """Seconds of ring and of star among `world` hosts."""
    command = [sys.executable, __file__, "--rank", "--bytes", str(options.bytes), "--repeats", str(options.repeats)]
    output = network.run_ranks(command, hosts=world, mbit=options.mbit, environment={"OMP_NUM_THREADS": "1"})
    return [float(line) for line in output.split()]


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
    times = [measure(world, options) for world in worlds]
    print("hosts   ring ms   star ms")
    for world, (ring, star) in zip(worlds, times):
        print(f"{world:5}  {1000 * ring:8.1f}  {1000 * star:8.1f}")
    if options.plot:
        draw(options.plot, worlds, times, options)
    ring, star = times[-1]
    sys.exit(0 if ring < star else 1)


if __name__ == "__main__":
    main()
