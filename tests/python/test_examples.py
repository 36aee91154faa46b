"""The examples of examples/python, as users start them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import run

TREE = Path(os.environ.get("RONDO_TREE", Path(__file__).parents[2]))
EXAMPLES = TREE / "examples"
sys.path.insert(0, str(TREE / "tests/support"))
import made_images  # noqa: E402


def start(world, name, *arguments):
    command = [sys.executable, "-m", "rondo.run", "-n", str(world), str(EXAMPLES / "python" / name), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [re.sub(r"^\[\d+\] ", "", line) for line in done.stdout.splitlines()]


def test_primitives_print_what_is_written_down_for_4_ranks():
    assert sorted(start(4, "primitives.py")) == sorted((EXAMPLES / "python/primitives.txt").read_text().splitlines())


def test_one_primitive_by_name():
    assert sorted(start(2, "primitives.py", "broadcast")) == [f"broadcast: rank {r} has 1 2" for r in range(2)]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return made_images.write(tmp_path_factory.mktemp("images"), 512, 64)


def test_average_gradients(images):
    lines = start(2, "average_gradients.py", "--epochs", "2", "--folder", str(images))
    losses = {}
    for line in lines:
        if found := re.fullmatch(r"Rank (\d) , epoch (\d) : (\d\.\d{4})", line):
            losses[int(found[1]), int(found[2])] = float(found[3])
    assert sorted(losses) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(losses[rank, 1] < losses[rank, 0] for rank in range(2))
    assert any(line.endswith("parameters equal on all ranks") for line in lines)


def average_gradients():
    """The program as a module."""
    sys.path.insert(0, str(EXAMPLES / "python"))
    spec = importlib.util.spec_from_file_location("average_gradients", EXAMPLES / "python/average_gradients.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def whole_batch(steps):
    random = np.random.default_rng(2)
    images = random.random((steps, 128, 784)).astype(np.float32)
    labels = random.integers(0, 10, (steps, 128))
    np.put_along_axis(images, labels[..., None], 10, axis=2)  # so that there is something to learn
    return images, labels


def trained(group, steps):
    module = average_gradients()
    model, losses = module.Perceptron(), []
    share = np.arange(group.rank, 128, group.size)
    for images, labels in zip(*whole_batch(steps)):
        loss, gradients = model.loss_and_gradients(images[share], labels[share])
        group.all_reduce_many(gradients, op="avg")
        model.step(gradients)
        losses.append(group.all_reduce(np.array([loss]), "avg")[0])
    return losses, model.parameters


@pytest.mark.parametrize("world", [2, 4])
def test_averaged_gradients_are_those_of_the_whole_batch(world):
    """The losses of 10 steps and the parameters after them are those of one process."""
    [(alone, expected)] = run(1, trained, 10)
    results = run(world, trained, 10)
    for losses, parameters in results:
        np.testing.assert_allclose(losses, alone, rtol=1e-4)
        for parameter, other, first in zip(parameters, expected, results[0][1]):
            np.testing.assert_allclose(parameter, other, atol=1e-5)
            assert parameter.tobytes() == first.tobytes()
    assert alone[-1] < alone[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces want root")
def test_ring_and_star():
    """On links of 100 Mbit/s a server among 4 hosts sends 3 arrays, a rank in the ring 1.5."""
    command = [sys.executable, str(TREE / "tests/lab/python/ring_and_star.py"), "--worlds", "4", "--bytes", "1048576",
               "--mbit", "100", "--repeats", "1"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "Operation not permitted" in done.stderr or "FileNotFoundError" in done.stderr:
        pytest.skip("no network namespaces here: " + done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    _, ring, star = map(float, done.stdout.splitlines()[-1].split())
    assert star > 1.4 * ring


def outputs(notebook):
    """Of each cell of code: what it prints and returns."""
    return [
        [output.get("text", output.get("data", {}).get("text/plain")) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_notebook(tmp_path):
    """Run again, it shows what was saved."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    path = EXAMPLES / "python/notebook.ipynb"
    saved, again = nbformat.read(path, 4), nbformat.read(path, 4)
    nbclient.NotebookClient(again, timeout=60, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    assert outputs(again) == outputs(saved)
    assert all(outputs(saved))
    assert "all_reduce" in (tmp_path / "ring.html").read_text()
