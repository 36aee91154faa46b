#!/usr/bin/env python3
"""all_reduce between two network namespaces of a limited rate: plain, in wire formats, of float32 also sparse; or broadcast of
weights, plain and packed. Wants root.

    python3 tests/lab/python/compression.py [--dtype float32|bfloat16] [--weights normal|uniform|FILE] [--mbit 1000,100] [--mib 64] [--rounds 5]
                                        [--json FILE] [--check]

The two ranks share this machine's cores. A round times every call once, so that the machine's moods meet all alike;
the table has the median round of the slower rank, selection and coding included, how often the plain call's time that is, and
what rank 0 has sent. bfloat16 needs the package ml_dtypes.
--weights: broadcasts so distributed ones, or those of a checkpoint of examples/trainers/cnn.py, again and again.
--check: exits with 1 where a call misses its bar.
"""

import argparse
import json
import statistics
import sys
import time

import network

CALLS = {
    "float32": (
        "plain", "float16", "bfloat16", "float8_e4m3", "int8", "int4", "top-k 5%", "top-k 1%", "sampled 1%", "threshold",
    ),
    "bfloat16": ("plain", "float8_e4m3", "int8", "int4"),
}  # fmt: skip
BROADCASTS = ("plain", "packed")
# Times as fast as the plain call, by type and Mbit/s.
BARS = {
    "float32": {1000: {"bfloat16": 1.9, "int8": 3.6, "top-k 1%": 8.0}, 100: {"top-k 1%": 20.0}},
    "bfloat16": {1000: {"int8": 1.8, "int4": 3.4, "packed": 1.33}},
}


def weights_of(what: str, count: int):
    import numpy as np

    random = np.random.default_rng(0)
    if what == "normal":
        return random.standard_normal(count, np.float32) * np.float32(0.02)
    if what == "uniform":
        return random.uniform(-0.05, 0.05, count).astype(np.float32)
    import torch

    tensors = torch.load(what, weights_only=False)["ranks"][0]["model"].values()
    return np.resize(torch.cat([tensor.flatten() for tensor in tensors]).numpy(), count)


def bytes_sent(group) -> int:
    links = [line for line in group.metrics().splitlines() if line.startswith("rondo_link_bytes_total")]
    return sum(int(line.split()[-1]) for line in links if 'direction="sent"' in line)


def rank_main(arguments) -> None:
    import numpy as np

    import rondo

    group = rondo.init()
    if arguments.dtype == "bfloat16":
        import ml_dtypes  # noqa: F401  NumPy knows the type by it
    dtype = np.dtype(arguments.dtype)
    count = (arguments.mib << 20) // dtype.itemsize
    if arguments.weights:
        gradient = weights_of(arguments.weights, count).astype(dtype)
    else:
        gradient = np.random.default_rng(group.rank).standard_normal(count, np.float32).astype(dtype)
    array, residual = gradient.copy(), np.zeros(count, np.float32)
    calls = {
        "plain": lambda: group.all_reduce(array),
        "top-k 5%": lambda: group.sparse_all_reduce(array, spars=0.05, residual=residual),
        "top-k 1%": lambda: group.sparse_all_reduce(array, spars=0.01, residual=residual),
        "sampled 1%": lambda: group.sparse_all_reduce(array, select="sampled_topk", spars=0.01, residual=residual),
        "threshold": lambda: group.sparse_all_reduce(array, select="threshold", spars=2.5758, residual=residual),  # 1 %
    }
    if arguments.weights:
        calls = {"plain": lambda: group.broadcast(array), "packed": lambda: group.broadcast(array, wire="packed")}
    times = {name: [] for name in (BROADCASTS if arguments.weights else CALLS[arguments.dtype])}
    sent = {}
    for turn in range(arguments.rounds + 1):
        for name in times:
            array[:] = gradient
            residual[:] = 0
            before = bytes_sent(group)
            group.barrier()
            begin = time.perf_counter()
            calls.get(name, lambda name=name: group.all_reduce(array, wire=name))()
            took = time.perf_counter() - begin
            sent[name] = bytes_sent(group) - before
            took = group.all_reduce(np.array([took]), "max")
            if turn > 0:
                times[name].append(float(took[0]))
    if group.rank == 0:
        print(json.dumps({name: [statistics.median(times[name]) * 1e3, sent[name]] for name in times}))


def measure(mbit: int) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--rank", *sys.argv[1:]]
    return json.loads(network.run_ranks(command, hosts=2, mbit=mbit, environment={"RONDO_TRANSPORT": "tcp"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=CALLS, default="float32")
    parser.add_argument("--weights", metavar="normal|uniform|FILE")
    parser.add_argument("--mbit", default="1000,100")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        return rank_main(arguments)
    results = {mbit: measure(mbit) for mbit in map(int, arguments.mbit.split(","))}
    print(f"{'broadcast' if arguments.weights else 'all_reduce'} of {arguments.mib} MiB of {arguments.dtype}, 2 ranks:")
    missed = 0
    for mbit, times in results.items():
        print(f"\n{mbit} Mbit/s\n{'call':<14}{'ms':>10}{'times as fast':>16}{'bar':>8}{'MB sent':>10}")
        for name, (ms, sent) in times.items():
            bar = BARS[arguments.dtype].get(mbit, {}).get(name)
            times_as_fast = times["plain"][0] / ms
            missed += bar is not None and times_as_fast < bar
            print(f"{name:<14}{ms:>10.1f}{times_as_fast:>16.1f}{bar if bar is not None else '':>8}{sent / 1e6:>10.1f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)
    sys.exit(1 if arguments.check and missed > 0 else 0)


if __name__ == "__main__":
    main()
