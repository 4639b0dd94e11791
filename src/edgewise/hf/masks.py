"""Masks of transformers as patterns, and padded or packed batches as runs of tokens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.hf.architectures import MASK_FUNCTIONS, PACKED_MASK, REMAPPED_MASK
from edgewise.hf.errors import UnknownMask
from edgewise.kernels.attention.present_rows import fewer

GraphLike = TypeVar("GraphLike")


@dataclass(frozen=True, eq=False)
class ModelMask:
    """Query i is at position first_query + i, key j at first_key + j.

    `allowed` are the pairs of positions that the model's own mask allows; `real` (batch, keys) is
    False at padding, `starts` (batch,) the position of the first token that is not padding;
    `documents` (batch, keys) is the index of the document in a packed row, `bias` is what the model
    added to the mask.
    """

    allowed: Pattern
    first_query: int = 0
    first_key: int = 0
    real: Tensor | None = None
    starts: Tensor | None = None
    documents: Tensor | None = None
    bias: Tensor | None = None
    ndim = 4  # tells transformers that the mask is prepared

    def __radd__(self, bias: Tensor) -> "ModelMask":
        return replace(self, bias=bias if self.bias is None else bias + self.bias)

    def contiguous(self) -> "ModelMask":
        return self

    def restricted(self, graph: GraphLike) -> GraphLike:
        """The pairs of a graph, or of graphs per head or sample, that the model allows."""
        if self.allowed == full() or graph == self.allowed:
            return graph
        return self.allowed if graph == full() else graph & self.allowed  # type: ignore

    @cached_property
    def allowed_after_cache(self) -> dict[Any, Tensor]:
        """The pairs of each graph and number of keys, computed once for all layers of a step."""
        return {}

    @cached_property
    def distinct_starts(self) -> frozenset[int]:
        """The positions of the first tokens of all rows."""
        return frozenset({0} if self.starts is None else self.starts.tolist())

    def select(self, rows: list[int]) -> "ModelMask":
        """The mask of some rows of the batch."""
        real, starts, documents = (
            None if x is None else x[rows] for x in (self.real, self.starts, self.documents)
        )
        real = None if real is None or bool(real.all()) else real
        return replace(self, real=real, starts=starts, documents=documents)

    @cached_property
    def runs(self) -> "TokenRuns | None":
        """The runs of tokens of the batch; None where every row is one run."""
        return None if self.real is None and self.documents is None else token_runs(self)


def build_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | ModelMask | None = None,
    **_: Any,
) -> ModelMask:
    """The mask function registered with transformers; models pass its result to the attention."""
    if isinstance(attention_mask, ModelMask):  # built before a step with a static cache
        return attention_mask
    allowed, documents = read_mask_function(mask_function)
    real = starts = None
    if attention_mask is not None:
        if len(attention_mask) != batch_size:
            raise UnknownMask(
                f"the attention mask has {len(attention_mask)} rows, the batch {batch_size}",
                caller(),
                "give a mask (batch, tokens)",
            )
        starts = attention_mask.long().argmax(1)
        real = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
        missing = kv_length - real.shape[1]
        if missing > 0:  # the unfilled part of a static cache
            real = torch.nn.functional.pad(real, (0, missing), value=False)
        real = None if bool(real.all()) else real
    return ModelMask(allowed, int(q_offset), int(kv_offset), real, starts, documents)


def read_mask_function(function: Callable[..., Any] | None) -> tuple[Pattern, Tensor | None]:
    """The pairs that a mask function of transformers allows, and the documents that it separates.

    Its parts are closures: each is identified by the function that made it, and holds its values.
    """
    allowed: Pattern = full()
    documents: Tensor | None = None
    for part in _conjuncts(function):
        cells = zip(part.__code__.co_freevars, part.__closure__ or (), strict=False)
        values = {name: cell.cell_contents for name, cell in cells}
        name = part.__qualname__.partition(".")[0]
        if name == PACKED_MASK:
            documents = values["packed_sequence_mask"]
        elif name in MASK_FUNCTIONS:
            pattern = MASK_FUNCTIONS[name](values)
            allowed = pattern if allowed == full() else allowed & pattern
        else:
            raise UnknownMask(
                f"the mask function `{name}` of the model is not known",
                caller(),
                "give the model a 4-D attention mask, or keep its own attention",
            )
    return allowed, documents


def _conjuncts(function: Any) -> list[Any]:
    if function is None:
        return []
    maker = function.__qualname__.partition(".")[0]
    if maker in ("and_masks", REMAPPED_MASK):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        if maker == REMAPPED_MASK:  # tokens of a document count from 0, as ours do
            return _conjuncts(cells["mask_function"].cell_contents)
        inner = cells["mask_functions"].cell_contents
        return [part for one in inner for part in _conjuncts(one)]
    return [function]


@dataclass(frozen=True, eq=False)
class TokenRuns:
    """Runs of tokens that count from 0, each a row of a new batch.

    `index` (runs, longest) are indices into the flattened (batch · tokens), `lengths` the number
    of tokens, `inside` (runs, longest) which are tokens. `holes` (runs, longest) is True at padding
    between tokens; `even` if all are equally long, `are_rows` if they are the rows of the batch,
    padded on the right, each of `row_length` tokens.
    """

    index: Tensor
    lengths: Tensor
    inside: Tensor
    holes: Tensor | None
    are_rows: bool
    row_length: int = 0
    even: bool = False

    def places(self) -> tuple[list[int], list[int], list[int]]:
        """Of each run its row of the batch, its first token and its length."""
        rows, firsts = self.index[:, 0] // self.row_length, self.index[:, 0] % self.row_length
        return rows.tolist(), firsts.tolist(), self.lengths.tolist()

    def by_length(self) -> "list[TokenRuns]":
        """The runs grouped by length."""
        found = []
        for n in self.lengths[self.lengths > 0].unique().tolist():
            some = self.lengths == n
            holes = None if self.holes is None else self.holes[some, :n]
            index, inside = self.index[some, :n], self.inside[some, :n]
            own = TokenRuns(index, self.lengths[some], inside, holes, False, self.row_length, True)
            found.append(own)
        return found

    def parts(self, width: int) -> "list[TokenRuns]":
        """The runs in as many calls as are the least work, for heads of `width` features in all."""
        if width not in self.chosen:
            lengths = self.lengths[self.lengths > 0]
            pairs, calls = int(lengths.square().sum()), len(lengths.unique())
            padded = self.index.numel() * self.index.shape[1]
            each = fewer(pairs, calls, padded, width)
            self.chosen[width] = self.by_length() if each else [self]
        return self.chosen[width]

    @cached_property
    def chosen(self) -> "dict[int, list[TokenRuns]]":
        """The parts of each width, computed once for all layers of a step."""
        return {}

    def bias(self, bias: Tensor, q: Tensor) -> Tensor:
        """A bias (batch, heads, n, n) for the new batch: (runs, heads, longest, longest)."""
        n = q.shape[-2]
        row, at = self.index[:, :1] // n, self.index % n
        bias = bias.expand(q.shape[0], *bias.shape[1:-2], n, n)
        return bias[row[:, :, None], :, at[:, :, None], at[:, None, :]].permute(0, 3, 1, 2)


def attend_in_runs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    parts: list[TokenRuns],
    attend: Callable[[Tensor, Tensor, Tensor, Tensor | None, TokenRuns], Tensor],
) -> Tensor:
    """Attention with every run of tokens as one row of a new batch; the output at padding is 0."""
    batch, heads, n = q.shape[:3]
    out = v.new_zeros(batch * n, heads, v.shape[-1])
    flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    tokens, places = [], []
    for runs in parts:
        own = None if bias is None else runs.bias(bias, q)
        a, b, c = (x[runs.index].transpose(1, 2) for x in flat)
        tokens.append(attend(a, b, c, own, runs).transpose(1, 2)[runs.inside].to(out.dtype))
        places.append(runs.index[runs.inside])
    out = out.index_copy(0, torch.cat(places), torch.cat(tokens)) if tokens else out
    return out.unflatten(0, (batch, n)).transpose(1, 2)


def token_runs(mask: ModelMask) -> TokenRuns:
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
    are_rows = mask.documents is None and bool((first[lengths > 0] == 0).all())
    return TokenRuns(index, lengths, inside, holes if bool(holes.any()) else None, are_rows, n)
