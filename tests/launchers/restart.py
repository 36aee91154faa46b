"""Under torchrun --max-restarts 1: in the first round rank 1 is killed in the middle; the second round ends well.

The ranks of the second round must not meet what the first one left.
"""

import os
import signal
import sys

import numpy as np
import rondo

group = rondo.init()
values = np.ones(100_000)
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
for step in range(50):
    if first and step == 10 and group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        total = group.all_reduce(values.copy())
    except rondo.Error as error:
        sys.stdout.write(f"rank {group.rank} told: {type(error).__name__} {error.ranks}\n")
        raise
sys.stdout.write(f"rank {group.rank} of {group.size}: sum {total[0]:g}\n")
