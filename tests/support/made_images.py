"""Small sets of images in MNIST's format for the tests of examples."""

from pathlib import Path

import numpy as np


def write(folder: Path, train: int, test: int) -> Path:
    """Bright at the pixel of their label. Returns the folder."""
    random = np.random.default_rng(1)
    for part, count in (("train", train), ("t10k", test)):
        labels = random.integers(0, 10, count).astype(np.uint8)
        images = random.integers(0, 50, (count, 28, 28)).astype(np.uint8)
        images.reshape(count, -1)[np.arange(count), 300 + labels.astype(int)] += 200
        for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, data.ndim]) + np.array(data.shape, ">u4").tobytes()
            (folder / f"{part}-{kind}-ubyte").write_bytes(head + data.tobytes())
    return folder
