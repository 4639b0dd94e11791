"""What a model says about who may hear whom, as a pattern and runs of tokens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs import blocks, causal, full, window
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import UnknownMask


@dataclass(frozen=True, eq=False)
class Mask:
    """Query i stands at position first_query + i, key j at first_key + j.

    `allowed` are the pairs of positions that the model itself allows; `real` (batch, keys) is
    False at padding, `starts` (batch,) the position of the first token that is not padding;
    `documents` (batch, keys) numbers the texts that are packed into one row.
    """

    allowed: Pattern
    first_query: int = 0
    first_key: int = 0
    real: Tensor | None = None
    starts: Tensor | None = None
    documents: Tensor | None = None
    ndim = 4  # to transformers, a mask that is made already

    def contiguous(self) -> "Mask":
        return self

    def taken(self, rows: list[int]) -> "Mask":
        """Of some rows of the batch."""
        real, starts, documents = (
            None if x is None else x[rows] for x in (self.real, self.starts, self.documents)
        )
        real = None if real is None or bool(real.all()) else real
        return replace(self, real=real, starts=starts, documents=documents)

    @cached_property
    def runs(self) -> "Runs | None":
        """How the tokens of the batch are counted; None where every row is one whole run."""
        return None if self.real is None and self.documents is None else runs_of(self)


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | Mask | None = None,
    **_: Any,
) -> Mask:
    """What transformers calls to make a mask; the result is handed to `attend` as it is."""
    if isinstance(attention_mask, Mask):  # made before a step with a cache of fixed size
        return attention_mask
    allowed, documents = read(mask_function)
    real = starts = None
    if attention_mask is not None:
        starts = attention_mask.long().argmax(1)
        real = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
        missing = kv_length - real.shape[1]
        if missing > 0:  # a cache of fixed size: what is not filled yet is no token
            real = torch.nn.functional.pad(real, (0, missing), value=False)
        real = None if bool(real.all()) else real
    return Mask(allowed, int(q_offset), int(kv_offset), real, starts, documents)


def read(function: Callable[..., Any] | None) -> tuple[Pattern, Tensor | None]:
    """The pairs that a mask function of transformers allows, and the documents that it tells apart.

    Its parts are closures: the function that made each is named, and holds its numbers.
    """
    allowed: Pattern = full()
    documents: Tensor | None = None
    for part in _parts(function):
        held = dict(zip(part.__code__.co_freevars, part.__closure__ or (), strict=False))
        match part.__qualname__.partition(".")[0]:
            case "causal_mask_function":
                allowed = _both(allowed, causal())
            case "bidirectional_mask_function":
                pass
            case "sliding_window_overlay":  # made to be met with causal: j > i - w
                allowed = _both(allowed, window(held["sliding_window"].cell_contents - 1))
            case "sliding_window_bidirectional_overlay":
                allowed = _both(allowed, window(held["sliding_window"].cell_contents))
            case "chunked_overlay":
                allowed = _both(allowed, blocks(held["chunk_size"].cell_contents))
            case "packed_sequence_mask_function":
                documents = held["packed_sequence_mask"].cell_contents
            case name:
                raise UnknownMask(
                    f"the model masks by `{name}`, which is not a pattern that is known here",
                    caller(),
                    "give the model a 4-D attention mask, or keep its own attention",
                )
    return allowed, documents


def _both(a: Pattern, b: Pattern) -> Pattern:
    return b if a == full() else a & b


def _parts(function: Any) -> list[Any]:
    if function is None:
        return []
    if function.__qualname__.startswith("and_masks."):
        held = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        inner = held["mask_functions"].cell_contents
        return [part for one in inner for part in _parts(one)]
    return [function]


@dataclass(frozen=True, eq=False)
class Runs:
    """Stretches of tokens that count from 0, one row of a new batch each.

    `index` (runs, longest) are places in the flattened (batch · tokens), `lengths` how many of
    them are tokens, `inside` (runs, longest) which. `holes` (runs, longest) is True at padding
    between tokens; `whole` says that the runs are the rows of the batch as they stand.
    """

    index: Tensor
    lengths: Tensor
    inside: Tensor
    holes: Tensor | None
    whole: bool

    def by_length(self) -> "list[Runs]":
        """The same, apart for each length."""
        found = []
        for n in self.lengths[self.lengths > 0].unique().tolist():
            some = self.lengths == n
            holes = None if self.holes is None else self.holes[some, :n]
            index, inside = self.index[some, :n], self.inside[some, :n]
            found.append(Runs(index, self.lengths[some], inside, holes, False))
        return found


def runs_of(mask: Mask) -> Runs:
    """From the first to the last real token of each document of each row."""
    known = mask.real if mask.real is not None else mask.documents
    assert known is not None
    (batch, n), device = known.shape, known.device
    real = torch.ones_like(known, dtype=torch.bool) if mask.real is None else mask.real
    texts = 1 if mask.documents is None else int(mask.documents.max()) + 1
    ids = torch.arange(batch, device=device)[:, None].expand(batch, n) * texts
    ids = ids if mask.documents is None else ids + mask.documents
    at = torch.arange(n, device=device).expand(batch, n)[real]
    bounds = torch.full((2, batch * texts), -1, device=device)
    bounds[0] = n
    bounds[0].scatter_reduce_(0, ids[real], at, "amin")
    bounds[1].scatter_reduce_(0, ids[real], at, "amax")
    first, last = bounds if mask.documents is None else bounds[:, bounds[1] >= 0]
    rows = torch.arange(batch * texts, device=device) // texts
    rows = rows if mask.documents is None else rows[bounds[1] >= 0]
    lengths = (last - first + 1).clamp_min(0)
    steps = torch.arange(n if mask.documents is None else int(lengths.max()), device=device)
    inside = steps < lengths[:, None]
    index = rows[:, None] * n + (first[:, None] + steps).clamp_max(n - 1)
    holes = inside & ~real.flatten()[index]
    whole = mask.documents is None and bool((first[lengths > 0] == 0).all())
    return Runs(index, lengths, inside, holes if bool(holes.any()) else None, whole)
