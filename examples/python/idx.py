"""Images and labels in MNIST's IDX format. Debian has such a set: apt-get install dataset-fashion-mnist."""

import gzip
from pathlib import Path

import numpy as np

FOLDER = Path("/usr/share/datasets/fashion-mnist")


def read(path: Path) -> np.ndarray:
    """One IDX file of bytes, plain or with .gz at the end of its name."""
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    if not path.exists():
        raise SystemExit(
            f"{path} is missing: apt-get install dataset-fashion-mnist, or name a folder that has MNIST's files"
        )
    data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    if data[:3] != b"\0\0\x08":
        raise SystemExit(f"{path} is no IDX file of bytes")
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """part: "train" or "t10k". Images as float32, shape (count, 784), 0 to 1; labels 0 to 9."""
    images = read(folder / f"{part}-images-idx3-ubyte")
    return images.reshape(len(images), -1).astype(np.float32) / 255, read(folder / f"{part}-labels-idx1-ubyte")
