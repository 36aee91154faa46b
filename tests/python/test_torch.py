"""Where torch can be imported: the backend "rondo" of torch.distributed, a smoke. The suite torch has its tests."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

SCRIPT = """
import torch, torch.distributed as dist, rondo.torch

dist.init_process_group("rondo")
tensor = torch.ones(3) * (1 + dist.get_rank())
dist.all_reduce(tensor)
print(tensor.tolist(), flush=True)
dist.destroy_process_group()
"""


def test_all_reduce(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "rondo.run", "-n", "2", str(script)],
        env=os.environ | {"RONDO_TORCH_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[3.0, 3.0, 3.0]") == 2, done.stdout
