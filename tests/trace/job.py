"""A rank for the traces' tests: calls all_reduce on 64 Ki floats until a file appears; says its pid in another."""

import os
import pathlib
import sys

import numpy as np

import rondo

folder = pathlib.Path(sys.argv[1])
group = rondo.init()
(folder / f"pid-{group.rank}.part").write_text(str(os.getpid()))
(folder / f"pid-{group.rank}.part").rename(folder / f"pid-{group.rank}")
values, end = np.ones(1 << 16, np.float32), np.zeros(1)
while True:
    group.all_reduce(values, op="max")
    end[0] = (folder / "end").exists()
    if group.all_reduce(end, op="max")[0]:
        break
group.close()
