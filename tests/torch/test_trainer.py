"""examples/trainers/cnn.py on a few made images: what it prints, by every way to start it; checkpoints, Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

TREE = Path(__file__).parents[2]
TRAINER = TREE / "examples/trainers/cnn.py"
sys.path.insert(0, str(TREE / "tests/support"))
sys.path.insert(0, str(TRAINER.parent))
import cnn  # noqa: E402
import made_images  # noqa: E402

FORMAT = r"Starting Epoch \d+:\nTraining loss = \d+\.\d{6}, training accuracy = \d\.\d{6}\nEvaluation accuracy = \d\.\d{6}\n"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return made_images.write(tmp_path_factory.mktemp("images"), 520, 130)


def command(ranks, images, *options):
    start = [sys.executable, "-m", "rondo.run", "-n", str(ranks), "--no-prefix", sys.executable]
    if ranks is None:
        start = [sys.executable]
    return [*start, str(TRAINER), "--folder", str(images), "--batch", "32", *map(str, options)]


def environment():
    path = os.pathsep.join(entry for entry in sys.path if entry)
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**clean, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def train(ranks, images, *options):
    done = subprocess.run(
        command(ranks, images, *options), env=environment(), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def straight(images):
    """Four epochs of two ranks."""
    return train(2, images, "--epochs", 4)


def test_lines_and_learning(straight):
    assert re.fullmatch(f"({FORMAT}){{4}}", straight), straight
    losses = [float(loss) for loss in re.findall(r"Training loss = ([\d.]+)", straight)]
    assert losses[3] < losses[0]


def test_processes_of_its_own_print_the_same(images, straight):
    assert train(None, images, "--epochs", 4, "--processes", 2) == straight


def test_numpy_arrays_train_the_same(images, straight):
    def numbers(text):
        return torch.tensor([float(number) for number in re.findall(r"\d+\.\d+", text)])

    through_numpy = train(2, images, "--epochs", 4, "--numpy")
    torch.testing.assert_close(numbers(through_numpy), numbers(straight), rtol=2e-3, atol=2e-3)


def test_one_global_batch_for_1_and_2_ranks(images):
    """One batch of the same images a step. Losses are means of a rank's, summed over ranks."""
    one, two = (train(ranks, images, "--epochs", 3, "--global-batch", 64, "--images", 64) for ranks in (1, 2))
    losses = [[float(loss) for loss in re.findall(r"Training loss = ([\d.]+)", text)] for text in (one, two)]
    assert losses[1] == pytest.approx([2 * loss for loss in losses[0]], abs=1e-4)
    with pytest.raises(AssertionError, match="has no equal parts for 2 ranks"):
        train(2, images, "--epochs", 1, "--global-batch", 65)


@pytest.mark.parametrize(
    "options", [["--option", "int8"], ["--option", "partialUpdate"], ["--option", "sparseTopK", "--numpy"]]
)
def test_a_checkpoint_resumes_to_the_same_lines(images, tmp_path, options):
    whole = train(2, images, *options, "--epochs", 3)
    checkpoint = ["--checkpoint", tmp_path / "c.pt", *options]
    first = train(2, images, *checkpoint, "--epochs", 1)
    assert first + train(2, images, *checkpoint, "--epochs", 3) == whole


def test_two_ranks_resumed_by_four(images, tmp_path, straight):
    options = ["--option", "int8", "--checkpoint", tmp_path / "c.pt"]
    first = train(2, images, *options, "--epochs", 2)
    more = train(4, images, *options, "--epochs", 4)
    assert re.fullmatch(f"({FORMAT}){{2}}", more)
    assert more.startswith("Starting Epoch 2:")
    losses = [float(loss) for loss in re.findall(r"Training loss = ([\d.]+)", first + more)]
    assert losses[3] < losses[0]


def test_another_option_goes_on_from_the_mean_of_ranks_that_differ(images, tmp_path):
    own, mean = tmp_path / "own.pt", tmp_path / "mean.pt"
    train(2, images, "--option", "partialUpdate", "--epochs", 1, "--checkpoint", own)
    state = torch.load(own, weights_only=False)
    first, second = (rank["model"]["0.weight"] for rank in state["ranks"])
    assert not torch.equal(first, second)
    state["ranks"] = [cnn.mean_of(state["ranks"])]
    torch.save(state, mean)
    lines = [train(2, images, "--option", "bf16", "--epochs", 2, "--checkpoint", file) for file in (own, mean)]
    assert re.fullmatch(FORMAT, lines[0])
    assert lines[0] == lines[1]


@pytest.mark.parametrize("ranks", [2, None])
def test_ctrl_c_leaves_a_checkpoint_that_resumes_to_the_same_lines(images, tmp_path, straight, ranks):
    checkpoint = tmp_path / "c.pt"
    own = [] if ranks else ["--processes", 2]
    options = ["--checkpoint", checkpoint, *own]
    process = subprocess.Popen(
        command(ranks, images, *options, "--epochs", 2000),
        env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out = process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        out += process.stdout.read()
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    done = torch.load(checkpoint, weights_only=False)
    assert done["world"] == 2
    assert done["epoch"] == out.count("Starting Epoch")
    if done["epoch"] < 4:
        out += train(ranks, images, *options, "--epochs", 4)
    count = min(len(out), len(straight))
    assert out[:count] == straight[:count]


def test_a_misspelt_option_is_named(images):
    begin = time.monotonic()
    done = subprocess.run(
        command(1, images, "--option", "int88"), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "invalid choice: 'int88'" in done.stderr
    assert time.monotonic() - begin < 60
