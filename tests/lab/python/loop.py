"""One rank of the peers of tests/lab/measure.sh --compare that are called from Python (peers.toml): times
calls on NumPy arrays of float32, sums; rank 0 writes the rows. Both libraries' functions have one shape here, so that the
same lines measure them.

python loop.py rondo|mpi4py --collective NAME --placement in|out --seconds S --sizes 8,64K --json FILE
  PEER_TRANSPORT, PEER_SETTING    what the rows are called
  MPI_BENCH_KEEP_HEAP=1           freed memory stays, as in mpi_bench.cc
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))
from programs import parse_size  # noqa: E402

BLOCK_SECONDS = 200e-6  # ranks leave the barrier before a block up to 2 us apart: 1 %
BUS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "broadcast": lambda n: 1.0}


class Rondo:
    def __init__(self):
        import rondo

        self.group = rondo.init()
        self.rank, self.size, self.barrier = self.group.rank, self.group.size, self.group.barrier

    def call(self, collective, x, out):
        if collective == "all_reduce":
            out = None if out is x else out
            return lambda: self.group.all_reduce(x, out=out)
        return (lambda: self.group.all_gather(x, out)) if collective == "all_gather" else lambda: self.group.broadcast(x)

    def slowest(self, seconds):
        return float(self.group.all_reduce(np.array([seconds]), "max")[0])


class Mpi4py:
    def __init__(self):
        if "MPI_BENCH_KEEP_HEAP" in os.environ:
            for setting, value in ((-4, 0), (-1, -1)):  # M_MMAP_MAX, M_TRIM_THRESHOLD
                ctypes.CDLL(None).mallopt(setting, value)
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size, self.barrier = self.comm.rank, self.comm.size, self.comm.Barrier

    def call(self, collective, x, out):
        if collective == "all_reduce":
            source = self.mpi.IN_PLACE if out is x else x
            return lambda: self.comm.Allreduce(source, out)
        return (lambda: self.comm.Allgather(x, out)) if collective == "all_gather" else lambda: self.comm.Bcast(x)

    def slowest(self, seconds):
        return self.comm.allreduce(seconds, self.mpi.MAX)


def wrong_values(collective, x, out, size) -> int:
    """After one call; x was rank + 1 everywhere, on root 1."""
    if collective == "all_reduce":
        return int((out != size * (size + 1) / 2).sum())
    return int((out != np.arange(1, size + 1)[:, None]).sum() if collective == "all_gather" else (x != 1).sum())


def measure(library, collective, in_place, asked, seconds) -> dict:
    blocks = library.size if collective == "all_gather" else 1
    count = max(1, asked // 4 // blocks)
    x = np.full(count, library.rank + 1, np.float32)
    out = x if in_place else np.empty((blocks, count) if blocks > 1 else count, np.float32)
    call = library.call(collective, x, out)
    call()
    wrong = wrong_values(collective, x, out, library.size)
    x[:] = 0  # sums in place stay
    for _ in range(4):
        call()
    library.barrier()
    begin = time.perf_counter()
    for _ in range(3):
        call()
    one = library.slowest((time.perf_counter() - begin) / 3)
    # Small calls are timed in blocks: reading the clock would be a part of what is measured.
    block = max(1, int(BLOCK_SECONDS / max(one, 1e-7)))
    times = []
    for _ in range(max(5, min(2000, int(seconds / (one * block))))):
        library.barrier()
        begin = time.perf_counter()
        for _ in range(block):
            call()
        times.append((time.perf_counter() - begin) / block * 1e6)
    us, size = library.slowest(statistics.median(times)), 4 * count * blocks
    return {
        "collective": collective, "transport": os.environ.get("PEER_TRANSPORT", "shm"),
        "algorithm": os.environ.get("PEER_SETTING", ""), "dtype": "float32",
        "op": "sum" if collective == "all_reduce" else "none", "world": library.size, "bytes": size, "in_place": in_place,
        "buffers": "plain", "calls": "blocking", "list": "none", "time_us": us, "p50_us": us,
        "p99_us": float(np.percentile(times, 99)), "min_us": min(times), "max_us": max(times),
        "algbw_gbps": size / us / 1e3, "busbw_gbps": size / us / 1e3 * BUS[collective](library.size),
        "cpu_s_per_gb": None, "limit_gbps": None, "share_of_limit": None, "wrong": wrong,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["rondo", "mpi4py"])
    parser.add_argument("--collective", choices=BUS, default="all_reduce")
    parser.add_argument("--placement", choices=["in", "out"], default="out")
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--sizes", default="8")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    library = Mpi4py() if options.library == "mpi4py" else Rondo()
    rows = [measure(library, options.collective, options.placement == "in", parse_size(size), options.seconds)
            for size in options.sizes.split(",")]  # fmt: skip
    if library.rank == 0:
        options.json.write_text(json.dumps({"rows": [{"library": options.library, **row} for row in rows]}))


if __name__ == "__main__":
    main()
