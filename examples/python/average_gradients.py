"""Synchronous SGD: every rank trains on its part of the images, and gradients are averaged after each step.

python -m rondo.run -n 2 average_gradients.py [--epochs 2] [--one-by-one] [--images 60000] [--folder DIR]

The model is a perceptron of 784, 128 and 10 units. A step takes 128 images, 128 / world of them on each rank.
"""

import argparse
import time
from pathlib import Path

import idx
import numpy as np

import rondo

BATCH, LEARNING_RATE, MOMENTUM, HIDDEN = 128, 0.01, 0.5, 128


def make_model() -> list[np.ndarray]:
    """The same on every rank, because the seed is."""
    random = np.random.default_rng(1234)
    return [
        (random.standard_normal((784, HIDDEN)) * np.sqrt(2 / 784)).astype(np.float32),
        np.zeros(HIDDEN, np.float32),
        (random.standard_normal((HIDDEN, 10)) * np.sqrt(2 / HIDDEN)).astype(np.float32),
        np.zeros(10, np.float32),
    ]


def loss_and_gradients(model, images, labels) -> tuple[float, list[np.ndarray]]:
    """Mean cross entropy, and its derivative by each array of the model."""
    w1, b1, w2, b2 = model
    hidden = np.maximum(images @ w1 + b1, 0)
    logits = hidden @ w2 + b2
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    probabilities[rows, labels] -= 1
    error = probabilities / np.float32(len(labels))
    back = (error @ w2.T) * (hidden > 0)
    return float(loss), [images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def average_gradients(group, gradients, one_by_one: bool) -> None:
    if one_by_one:
        for gradient in gradients:
            group.all_reduce(gradient, op="avg")
    else:
        group.all_reduce_many(gradients, op="avg")


def accuracy(model, images, labels) -> float:
    w1, b1, w2, b2 = model
    logits = np.maximum(images @ w1 + b1, 0) @ w2 + b2
    return float((logits.argmax(axis=1) == labels).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--folder", type=Path, default=idx.FOLDER)
    parser.add_argument("--one-by-one", action="store_true", help="one all_reduce an array, not one call for all")
    options = parser.parse_args()

    group = rondo.init()
    images, labels = (array[: options.images] for array in idx.load(options.folder, "train"))
    part = rondo.data.shuffled_fractions(len(images), [1 / group.size] * group.size)[group.rank]
    images, labels = images[part], labels[part]

    model = make_model()
    velocity = [np.zeros_like(array) for array in model]
    batch = BATCH // group.size
    spent = 0.0
    for epoch in range(options.epochs):
        losses = []
        for begin in range(0, len(images) - batch + 1, batch):
            chosen = slice(begin, begin + batch)
            loss, gradients = loss_and_gradients(model, images[chosen], labels[chosen])
            losses.append(loss)
            started = time.perf_counter()
            average_gradients(group, gradients, options.one_by_one)
            spent += time.perf_counter() - started
            for array, v, gradient in zip(model, velocity, gradients):
                v *= MOMENTUM
                v -= LEARNING_RATE * gradient
                array += v
        print(f"Rank {group.rank} , epoch {epoch} : {np.mean(losses):.4f}", flush=True)

    bits = group.all_gather_object([array.tobytes() for array in model])
    if group.rank == 0:
        same = all(other == bits[0] for other in bits)
        test = accuracy(model, *idx.load(options.folder, "t10k"))
        print(f"test accuracy {test:.4f}; parameters {'equal' if same else 'DIFFER'} on all ranks; "
              f"{spent:.2f} s averaging", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
