"""Random numbers of a run: each step has its own, drawn from the seed and the step.

So a run that is continued at step s draws what it would have drawn, whatever happened before, and
no state of a generator is kept.
"""

import hashlib

import torch


def number(seed: int, *names: object) -> int:
    """A seed for one purpose, such as `number(0, "dropout", step)`.

    >>> number(0, "batch", 1) == number(0, "batch", 1) != number(0, "batch", 2)
    True
    """
    words = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7], "big")


def generator(seed: int, *names: object) -> torch.Generator:
    return torch.Generator().manual_seed(number(seed, *names))
