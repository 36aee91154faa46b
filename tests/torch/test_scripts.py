"""The scripts that tutorials begin with (examples/torch) print the same lines with gloo and with rondo, and those that are
written down."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

TREE = Path(__file__).parents[2]
EXAMPLES = TREE / "examples/torch"
PYTHON = (sys.executable,)


def torchrun(count):
    return (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "--redirects=1")


def free_port():
    """One whose successor is free, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def lines_of(command, script, options, backend, folder):
    """What all ranks print, sorted. The script is copied, with its one word changed where backend is gloo."""
    text = (EXAMPLES / script).read_text()
    assert text.count('"rondo"') >= 1
    copy = folder / f"{backend}_{script}"
    # Without the entry point (in the source tree) the backend is made known by the import.
    text = text.replace("import torch\n", "import torch\nimport rondo.torch\n", 1)
    copy.write_text(text.replace('"rondo"', f'"{backend}"'))
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1",
        "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PYTHONUNBUFFERED"):
        environment.pop(name, None)
    logs = Path(tempfile.mkdtemp(dir=folder))  # torchrun's ranks write line ends apart from lines: each has its file
    launched = [*command, f"--log-dir={logs}"] if command != PYTHON else command
    done = subprocess.run(
        [*launched, str(copy), *options],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"{script} with {backend}:\n{done.stdout}\n{done.stderr}"
    printed = [file.read_text() for file in logs.rglob("stdout.log")] or [done.stdout]
    return sorted(line for text in printed for line in text.splitlines())


START = [
    f"rank {rank} of 2, by {way}: 3" for rank in range(2) for way in ("a store", "env://", "file://", "tcp://")
]


def test_every_way_to_start(tmp_path):
    for backend in ("gloo", "rondo"):
        assert lines_of(PYTHON, "start_up.py", ["2"], backend, tmp_path) == START, backend


def test_ddp_by_torchrun_and_by_spawn(tmp_path):
    options = ["--max_epochs", "2", "--batch_size", "32", "--save"]
    lines, parameters = {}, {}
    for backend in ("gloo", "rondo"):
        for name, command, more in (("torchrun", torchrun(2), []), ("spawn", PYTHON, ["--spawn", "2"])):
            file = tmp_path / f"{backend}.{name}.pt"
            lines[backend, name] = lines_of(command, "ddp.py", [*options, str(file), *more], backend, tmp_path)
            parameters[backend, name] = torch.load(file)
    first = lines["rondo", "torchrun"]
    assert len(first) == 4 and "[rank 1] Epoch 0 | Batchsize: 32 | Steps: 32 | Loss: " in first[2]
    for key, printed in lines.items():
        assert printed == first, key
        for name, tensor in parameters[key].items():
            assert torch.equal(tensor, parameters["rondo", "torchrun"][name]), (key, name)


def test_tensor_parallel(tmp_path):
    for world in (2, 4):
        lines = lines_of(torchrun(world), "tensor_parallel.py", ["--tokens", "4"], "rondo", tmp_path)
        own = 1024 // world
        assert lines == [f"rank {rank}: 4 tokens, q is ({own}, 1024) of (1024, 1024)" for rank in range(world)]
