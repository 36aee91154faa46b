"""Training by the frameworks that people have: with rondo the parameters after ten steps are those with gloo, to the bit."""

import os
import subprocess
import sys
from pathlib import Path

import model
import pytest
import torch

HERE = Path(__file__).parent
PYTHON = (sys.executable,)
TORCHRUN = (*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
SCRIPTS = {  # how it is started, the script, its options
    "deepspeed, ZeRO 1": (TORCHRUN, "with_deepspeed.py", ["1"]),
    "deepspeed, ZeRO 2": (TORCHRUN, "with_deepspeed.py", ["2"]),
    "deepspeed, ZeRO 3": (TORCHRUN, "with_deepspeed.py", ["3"]),
    "lightning": (TORCHRUN, "with_lightning.py", []),
    "accelerate": (TORCHRUN, "with_accelerate.py", []),
    "ray": (PYTHON, "with_ray.py", []),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_equal_to_gloo(name, tmp_path):
    by_gloo = trained(name, "gloo", tmp_path)
    by_rondo = trained(name, "rondo", tmp_path)
    start = model.make().state_dict()
    assert set(by_rondo) == set(by_gloo) == set(start)
    for key, tensor in by_rondo.items():
        assert not torch.equal(tensor, start[key]), f"{key} was not trained"
        assert torch.equal(tensor, by_gloo[key]), f"{key} differs by {(tensor - by_gloo[key]).abs().max()}"


def trained(name, backend, folder):
    command, script, options = SCRIPTS[name]
    file = folder / f"{backend}.pt"
    done = subprocess.run(
        [*command, script, backend, str(file), *options],
        cwd=HERE, env=environment(), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{name} with {backend}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return torch.load(file)


def environment():
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
        "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "1", "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
