"""Every rank prints "rank R of N: sum S"; tests/launchers checks them. NumPy only."""

import sys

import numpy as np
import rondo

group = rondo.init()
total = group.all_reduce(np.full(1000, 1.0 + group.rank))
# One write, so that lines of several ranks do not mix.
sys.stdout.write(f"rank {group.rank} of {group.size}: sum {total[0]:g}\n")
