"""Synchronous SGD: every rank trains on its part of the images, and gradients are averaged after each step.

python -m rondo.run -n 2 average_gradients.py [--epochs 2] [--images 60000] [--folder DIR]

The model is a perceptron of 784, 128 and 10 units. A step takes 128 images, 128 / world of them on each rank.
"""

import argparse
from pathlib import Path

import idx
import numpy as np

import rondo

BATCH, LEARNING_RATE, MOMENTUM, HIDDEN = 128, 0.01, 0.5, 128


class Perceptron:
    """784 inputs, HIDDEN units with ReLU, 10 classes. The same on every rank, because the seed is."""

    def __init__(self):
        random = np.random.default_rng(1234)
        self.parameters = [
            (random.standard_normal((784, HIDDEN)) * np.sqrt(2 / 784)).astype(np.float32),
            np.zeros(HIDDEN, np.float32),
            (random.standard_normal((HIDDEN, 10)) * np.sqrt(2 / HIDDEN)).astype(np.float32),
            np.zeros(10, np.float32),
        ]
        self.velocities = [np.zeros_like(parameter) for parameter in self.parameters]

    def forward(self, images):
        w1, b1, w2, b2 = self.parameters
        hidden = np.maximum(images @ w1 + b1, 0)
        return hidden, hidden @ w2 + b2

    def loss_and_gradients(self, images, labels) -> tuple[float, list[np.ndarray]]:
        """Mean cross entropy, and its derivative by each parameter."""
        hidden, logits = self.forward(images)
        logits -= logits.max(axis=1, keepdims=True)
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels]).mean()
        probabilities[rows, labels] -= 1
        error = probabilities / np.float32(len(labels))
        back = (error @ self.parameters[2].T) * (hidden > 0)
        return float(loss), [images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]

    def step(self, gradients) -> None:
        for parameter, velocity, gradient in zip(self.parameters, self.velocities, gradients):
            velocity *= MOMENTUM
            velocity -= LEARNING_RATE * gradient
            parameter += velocity

    def accuracy(self, images, labels) -> float:
        _, logits = self.forward(images)
        return float((logits.argmax(axis=1) == labels).mean())


def train_epoch(group, model, images, labels) -> float:
    """The mean of this rank's losses. The last images, too few for a batch, are left out."""
    batch = BATCH // group.size
    losses = []
    for begin in range(0, len(images) - batch + 1, batch):
        chosen = slice(begin, begin + batch)
        loss, gradients = model.loss_and_gradients(images[chosen], labels[chosen])
        group.all_reduce_many(gradients, op="avg")
        model.step(gradients)
        losses.append(loss)
    return float(np.mean(losses))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--folder", type=Path, default=idx.FOLDER)
    options = parser.parse_args()

    group = rondo.init()
    images, labels = (array[: options.images] for array in idx.load(options.folder, "train"))
    part = rondo.data.shuffled_fractions(len(images), [1 / group.size] * group.size)[group.rank]
    images, labels = images[part], labels[part]
    model = Perceptron()
    for epoch in range(options.epochs):
        loss = train_epoch(group, model, images, labels)
        print(f"Rank {group.rank} , epoch {epoch} : {loss:.4f}", flush=True)

    bits = group.all_gather_object([parameter.tobytes() for parameter in model.parameters])
    if group.rank == 0:
        same = all(other == bits[0] for other in bits)
        print(f"test accuracy {model.accuracy(*idx.load(options.folder, 't10k')):.4f}; "
              f"parameters {'equal' if same else 'DIFFER'} on all ranks", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
