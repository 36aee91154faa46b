"""Which samples of a data set belong to which rank."""

from __future__ import annotations

from collections.abc import Sequence

from rondo._arguments import COUNT_MAX, real_number, whole_number

__all__ = ["partition", "shuffled_fractions"]


def partition(count: int, size: int, rank: int) -> range:
    """The rank-th of `size` equal, contiguous parts of range(count): count // size indices. The last count % size
    samples belong to nobody: 60,000 among 7 ranks leaves out 3.

    >>> partition(60000, 4, 1)
    range(15000, 30000)
    """
    count = whole_number(count, "count", least=0, most=COUNT_MAX)
    size = whole_number(size, "size", least=1)
    if not 0 <= whole_number(rank, "rank") < size:
        raise ValueError(f"partition({count}, {size}, {rank}): 0 <= rank < size is needed")
    part = count // size
    return range(rank * part, (rank + 1) * part)


def shuffled_fractions(
    count: int, fractions: Sequence[float] = (0.7, 0.2, 0.1), seed: int = 1234
) -> list[list[int]]:
    """range(count) shuffled by random.Random(seed) and cut into int(fraction * count) indices each, the same on every
    rank. What truncation leaves over belongs to nobody. Of `size` equal parts: fractions [1 / size] * size.

    >>> [len(part) for part in shuffled_fractions(60000, [1 / 7] * 7)]
    [8571, 8571, 8571, 8571, 8571, 8571, 8571]
    """
    count = whole_number(count, "count", least=0, most=COUNT_MAX)
    seed = whole_number(seed, "seed", least=-(2**63), most=COUNT_MAX)
    fractions = [real_number(fraction, f"fractions[{i}]") for i, fraction in enumerate(fractions)]
    if not all(fraction >= 0 for fraction in fractions) or sum(fractions) > 1 + 1e-9:
        raise ValueError(f"shuffled_fractions({count}, {fractions}): none may be negative or NaN, nor the sum above 1")
    import random  # here, because few need it

    indices = list(range(count))
    random.Random(seed).shuffle(indices)
    parts, begin = [], 0
    for fraction in fractions:
        end = begin + int(fraction * count)
        parts.append(indices[begin:end])
        begin = end
    return parts
