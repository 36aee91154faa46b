"""One rank of beside_mpi4py.py: times calls on NumPy arrays; rank 0 prints one line of JSON, the library's version and a
row a size. The library's functions have one shape here, so that both are measured by the same lines.

python loop.py rondo|rondo-prepared|mpi4py COLLECTIVE SECONDS BYTES ...
"""

import json
import statistics
import sys
import time

import numpy as np

BLOCK_SECONDS = 200e-6  # ranks leave the barrier before a block up to 2 us apart: 1 %


class Rondo:
    def __init__(self, prepared):
        import rondo

        self.group = rondo.init()
        self.rank, self.size = self.group.rank, self.group.size
        self.version = f"Rondo {rondo.__version__}"
        self.prepared = prepared

    def call(self, collective, x, out):
        if collective == "all_reduce":
            if self.prepared:
                return self.group.prepare_all_reduce(x, out=out)
            return lambda: self.group.all_reduce(x, out=out)
        if collective == "all_gather":
            return lambda: self.group.all_gather(x, out)
        return lambda: self.group.broadcast(x)

    def slowest(self, seconds):
        return float(self.group.all_reduce(np.array([seconds]), "max")[0])

    def barrier(self):
        self.group.barrier()


class Mpi4py:
    def __init__(self):
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.version = MPI.Get_library_version().splitlines()[0].split(",")[0].strip()

    def call(self, collective, x, out):
        if collective == "all_reduce":
            return lambda: self.comm.Allreduce(x, out)
        if collective == "all_gather":
            return lambda: self.comm.Allgather(x, out)
        return lambda: self.comm.Bcast(x)

    def slowest(self, seconds):
        return self.comm.allreduce(seconds, self.mpi.MAX)

    def barrier(self):
        self.comm.Barrier()


def right(collective, x, out, size) -> bool:
    """x is rank + 1 everywhere, on root 1."""
    if collective == "all_reduce":
        return bool((out == size * (size + 1) / 2).all())
    if collective == "all_gather":
        return bool((out == np.arange(1, size + 1)[:, None]).all())
    return bool((x == 1).all())


def measure(library, collective, count, seconds) -> dict:
    x = np.full(count, library.rank + 1, np.float32)
    out = np.empty((library.size, count) if collective == "all_gather" else count, np.float32)
    call = library.call(collective, x, out)
    for _ in range(5):
        call()
    ok = right(collective, x, out, library.size)
    library.barrier()
    begin = time.perf_counter()
    for _ in range(3):
        call()
    one = library.slowest((time.perf_counter() - begin) / 3)
    # Small calls are timed in blocks: reading the clock would be a part of what is measured.
    block = max(1, int(BLOCK_SECONDS / max(one, 1e-7)))
    blocks = max(5, min(2000, int(seconds / (one * block))))
    times = []
    for _ in range(blocks):
        library.barrier()
        begin = time.perf_counter()
        for _ in range(block):
            call()
        times.append((time.perf_counter() - begin) / block)
    return {"bytes": 4 * count, "us": library.slowest(statistics.median(times)) * 1e6, "right": ok}


def main():
    name, collective, seconds, *sizes = sys.argv[1:]
    library = Mpi4py() if name == "mpi4py" else Rondo(name == "rondo-prepared")
    rows = [measure(library, collective, int(size) // 4, float(seconds)) for size in sizes]
    if library.rank == 0:
        print(json.dumps({"version": library.version, "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
