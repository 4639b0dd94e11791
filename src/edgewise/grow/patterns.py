"""The patterns whose rows stay as they are when tokens are appended."""

from dataclasses import fields
from typing import Any

import torch

import edgewise.graphs as graphs
from edgewise.graphs.algebra import (
    Derived,
    complement,
    difference,
    intersection,
    restricted,
    shifted,
    transpose,
    union,
)

# (i, j) alone says whether these hold, whatever the lengths
OF_THE_PAIR = (
    *(graphs.full, graphs.causal, graphs.window, graphs.dilated, graphs.strided, graphs.fixed),
    *(graphs.global_tokens, graphs.prefix, graphs.blocks, graphs.sparse_transformer),
)
MADE_OF = (union, intersection, difference, complement, transpose, shifted, restricted)


def why_not(pattern: Any, capacity: int) -> str | None:
    """Why appending a row changes those before it, or None."""
    if pattern is None:
        return "every row attends to all rows, later ones too"
    part = varies(pattern)
    if part is not None:
        return f"the pairs of `{part!r}` depend on the number of rows"
    if capacity and pattern.count(capacity) != (pattern & graphs.causal()).count(capacity):
        return f"in `{pattern!r}` a row attends to later rows"
    every = torch.arange(capacity)
    if not bool(pattern.contains(every, every, capacity).all()):
        return f"in `{pattern!r}` a row does not attend to itself, so it may have no key"
    return None


def varies(pattern: Any) -> Any | None:
    """A part that is not decided by the pair alone."""
    if isinstance(pattern, OF_THE_PAIR):
        return None
    if isinstance(pattern, Derived):
        return varies(pattern.definition())
    if not isinstance(pattern, MADE_OF):
        return pattern
    for field in fields(pattern):
        held = getattr(pattern, field.name)
        for part in held if isinstance(held, tuple) else (held,):
            found = varies(part) if isinstance(part, graphs.Pattern) else None
            if found is not None:
                return found
    return None
