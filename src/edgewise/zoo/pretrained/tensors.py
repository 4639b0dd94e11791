"""The tensors of a checkpoint: which of our weights each one holds, and how."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import nearest, raise_all
from edgewise.language.program import Program
from edgewise.language.statements import name_weights, weights
from edgewise.language.terms import variables
from edgewise.zoo.pretrained.fields import BadPretrained

MOST_SHOWN = 12  # problems with tensors
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorEntry:
    """One of our weights and the tensor of a checkpoint that holds it.

    `joined`: how many leading axes of our weight (heads, head size) are one axis there. `part`
    (axis, start, n): ours is a piece of an axis of n. `order`: the axes of the tensor in our order;
    a matrix that is (in, out) there has (1, 0). `shape`: the tensor's shape, if none of these gives
    it; `view`: the tensor with more axes, to which `part` and `order` then refer.
    """

    ours: str
    theirs: str
    joined: int = 1
    part: tuple[int, int, int] | None = None
    order: Shape | None = None
    shape: Shape | None = None
    view: Shape | None = None

    def their_shape(self, ours: Shape) -> Shape:
        """The shape of the tensor in the checkpoint.

        >>> TensorEntry(
        ...     "q.weight", "attn.qkv", joined=2, order=(1, 0), part=(1, 0, 24)
        ... ).their_shape((2, 4, 8))
        (8, 24)
        """
        if self.shape is not None:
            return self.shape
        flat = [math.prod(ours[: self.joined]), *ours[self.joined :]]
        found = [flat[self.order.index(a)] for a in range(len(flat))] if self.order else flat
        if self.part is not None:
            found[self.part[0]] = self.part[2]
        return tuple(found)

    def read(self, theirs: Tensor, ours: Shape) -> Tensor:
        seen = theirs.reshape(self.view) if self.view else theirs
        if self.part is not None:
            seen = seen.narrow(self.part[0], self.part[1], self._length(ours))
        return (seen.permute(self.order) if self.order else seen).reshape(ours)

    def write(self, ours: Tensor) -> Tensor:
        """Our weight as it lies in the tensor: all of it, or the part."""
        seen = list(self.view or self.their_shape(tuple(ours.shape)))
        if self.part is not None:
            seen[self.part[0]] = self._length(tuple(ours.shape))
        if self.order is None:
            return ours.reshape(seen)
        back = [self.order.index(a) for a in range(len(seen))]
        return ours.reshape([seen[a] for a in self.order]).permute(back)

    def _length(self, ours: Shape) -> int:
        """How much of the axis is ours."""
        assert self.part is not None
        seen = self.view or self.their_shape(ours)
        return math.prod(ours) * seen[self.part[0]] // math.prod(seen)


def linear(ours: str, theirs: str, *, joined: int = 1, bias: bool = True) -> list[TensorEntry]:
    """A matrix and its bias."""
    made = [TensorEntry(f"{ours}.weight", f"{theirs}.weight", joined)]
    return [*made, TensorEntry(f"{ours}.bias", f"{theirs}.bias", joined)] if bias else made


def norm(ours: str, theirs: str) -> list[TensorEntry]:
    """The gain and bias of a layer norm."""
    return [
        TensorEntry(f"{ours}.gain", f"{theirs}.weight"),
        TensorEntry(f"{ours}.bias", f"{theirs}.bias"),
    ]


def taps(ours: str, theirs: str, shape: Shape) -> Iterator[TensorEntry]:
    """The matrices of a convolution, one for each tap, and its bias."""
    for k in range(shape[2]):
        yield TensorEntry(f"{ours}.{k}", f"{theirs}.weight", part=(2, k, shape[2]), shape=shape)
    yield TensorEntry(f"{ours}.bias", f"{theirs}.bias")


def layers(config: Any, ours: str, theirs: str, names: Mapping[str, str]) -> Iterator[TensorEntry]:
    """The matrices, biases and norms of all layers, by their names; q, k and v have heads."""
    for i in range(config.layers):
        for name, other in names.items():
            at = f"{ours}.{i}.{name}", f"{theirs}.{i}.{other}"
            is_norm, joined = name.startswith("norm"), 2 if name in ("q", "k", "v") else 1
            yield from norm(*at) if is_norm else linear(*at, joined=joined)


def to_ours(
    entries: Iterable[TensorEntry], theirs: Mapping[str, Tensor], shapes: Mapping[str, Shape]
) -> dict[str, Tensor]:
    """Our weights by name; `shapes` are theirs in the program."""
    return {e.ours: e.read(theirs[e.theirs], shapes[e.ours]) for e in entries}


def to_theirs(entries: Iterable[TensorEntry], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name."""
    parts: dict[str, list[tuple[TensorEntry, Tensor]]] = {}
    for entry in entries:
        if entry.ours in ours:
            parts.setdefault(entry.theirs, []).append((entry, ours[entry.ours]))
    return {name: _assembled(pieces).contiguous() for name, pieces in parts.items()}


def _assembled(pieces: list[tuple[TensorEntry, Tensor]]) -> Tensor:
    """A tensor of a checkpoint from the weights that it holds."""
    first, weight = pieces[0]
    shape = first.their_shape(tuple(weight.shape))
    if first.part is None:
        return first.write(weight).reshape(shape)
    ordered = sorted(pieces, key=lambda piece: piece[0].part or (0, 0, 0))
    return torch.cat([e.write(w) for e, w in ordered], first.part[0]).reshape(shape)


def check_tensors(
    entries: Sequence[TensorEntry],
    found: Mapping[str, Shape],
    shapes: Mapping[str, Shape],
    optional: Iterable[str],
) -> None:
    """Refuse a checkpoint in which tensors are missing, extra or of another shape."""
    wanted = {e.theirs: e.their_shape(shapes[e.ours]) for e in entries}
    extra = [name for name in found if name not in wanted and name not in set(optional)]
    problems: list[tuple[str, str]] = []
    for name, shape in wanted.items():
        if name not in found:
            near = nearest(name, extra) if len(problems) < MOST_SHOWN else None
            otherwise = "the checkpoint is incomplete: save it again"
            problems.append((f"`{name}` is missing", f"there is `{near}`" if near else otherwise))
        elif tuple(found[name]) != shape:
            said = f"`{name}` is {tuple(found[name])}, the configuration says {shape}"
            problems.append((said, "give the configuration that the checkpoint was saved with"))
    for name in extra:
        why = "is this a checkpoint of another architecture?"
        problems.append((f"`{name}` does not belong to this model", why))
    shown = [BadPretrained(f"the tensor {what}", help=help) for what, help in problems[:MOST_SHOWN]]
    if left := len(problems) - len(shown):
        more = f"{left} more tensors are missing, of another shape or do not belong to this model"
        shown.append(BadPretrained(more, help="compare the names of the tensors with those above"))
    raise_all(shown)


def shapes_of(program: Program) -> dict[str, Shape]:
    """Weight name → shape, of those that a checkpoint holds.

    >>> from edgewise.language import R, V, W
    >>> shapes_of(Program([R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, 4]]], domains={V.H: 3}))
    {'q': (3, 2, 4)}
    """
    domains = dict(program.domains)
    found: dict[str, Shape] = {}
    for statement in name_weights(program):
        for weight in weights(statement):
            if weight.shape is not None and weight.name is not None:
                keys = (domains[v.name] for v in variables(weight.keys))
                sizes = tuple(k if isinstance(k, int) else len(k) for k in keys)
                found.setdefault(weight.name, (*sizes, *weight.shape))
    return found
