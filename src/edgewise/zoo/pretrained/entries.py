"""Our weights and the tensors of a checkpoint, side by side: one table per layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, nearest

Shape = tuple[int, ...]


class BadPretrained(EdgewiseError):
    """A checkpoint is read whole or not at all: every tensor is one that the model has."""

    code = "bad-pretrained"
    example = """\
from pathlib import Path
from edgewise import zoo
Path("model").mkdir()
Path("model/config.json").write_text('{"model_type": "gpt2", "n_embd": "large"}')
zoo.from_pretrained("model")"""
    instead = """\
from edgewise import zoo
config = zoo.gpt2.Config(vocabulary=8, size=4, heads=2, hidden=4, layers=1)
weights = zoo.gpt2.program(config).weights(seed=0)
zoo.save_pretrained("model", zoo.gpt2, config, weights)
zoo.from_pretrained("model")"""


@dataclass(frozen=True)
class Entry:
    """One weight of ours and where it lies in theirs.

    `joined` axes at the front of ours (heads and the numbers of each) are one axis there. With
    `turned` the matrix is (in, out) there. `part` (k, n): it is the k-th of n equal parts of the
    last axis. `shape`: the same numbers in this shape, where no other word fits.
    """

    ours: str
    theirs: str
    joined: int = 1
    turned: bool = False
    part: tuple[int, int] = (0, 1)
    shape: Shape | None = None

    def their_shape(self, ours: Shape) -> Shape:
        """The shape of the whole tensor there.

        >>> Entry("q.weight", "attn.qkv", joined=2, turned=True, part=(0, 3)).their_shape((2, 4, 8))
        (8, 24)
        """
        if self.shape is not None:
            return self.shape
        flat = (math.prod(ours[: self.joined]), *ours[self.joined :])
        flat = flat[::-1] if self.turned else flat
        return (*flat[:-1], flat[-1] * self.part[1])

    def read(self, theirs: Tensor, ours: Shape) -> Tensor:
        part = theirs.chunk(self.part[1], -1)[self.part[0]] if self.part[1] > 1 else theirs
        return (part.T if self.turned else part).reshape(ours)

    def write(self, ours: Tensor) -> Tensor:
        if self.shape is not None:
            return ours.reshape(self.shape)
        flat = ours.flatten(0, self.joined - 1) if self.joined > 1 else ours
        return flat.T if self.turned else flat


def linear(ours: str, theirs: str, *, joined: int = 1, bias: bool = True) -> list[Entry]:
    """A matrix and its bias."""
    made = [Entry(f"{ours}.weight", f"{theirs}.weight", joined)]
    return [*made, Entry(f"{ours}.bias", f"{theirs}.bias", joined)] if bias else made


def norm(ours: str, theirs: str) -> list[Entry]:
    """The gain and bias of a layer norm."""
    return [Entry(f"{ours}.gain", f"{theirs}.weight"), Entry(f"{ours}.bias", f"{theirs}.bias")]


def to_ours(
    entries: Iterable[Entry], theirs: Mapping[str, Tensor], shapes: Mapping[str, Shape]
) -> dict[str, Tensor]:
    """Our weights by name; `shapes` are theirs in the program."""
    return {e.ours: e.read(theirs[e.theirs], shapes[e.ours]) for e in entries}


def to_theirs(entries: Iterable[Entry], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name."""
    parts: dict[str, dict[int, Tensor]] = {}
    for entry in entries:
        if entry.ours in ours:
            parts.setdefault(entry.theirs, {})[entry.part[0]] = entry.write(ours[entry.ours])
    return {
        name: torch.cat([found[k] for k in sorted(found)], -1).contiguous()
        for name, found in parts.items()
    }


def check_tensors(
    entries: Sequence[Entry],
    found: Mapping[str, Shape],
    shapes: Mapping[str, Shape],
    spare: Iterable[str],
) -> None:
    """Refuse a checkpoint in which a tensor is missing, extra or of another shape."""
    wanted = {e.theirs: e.their_shape(shapes[e.ours]) for e in entries}
    for name, shape in wanted.items():
        if name not in found:
            near = nearest(name, [n for n in found if n not in wanted])
            raise BadPretrained(
                f"the tensor `{name}` is missing",
                help=f"there is `{near}`" if near else "save the checkpoint again, whole",
            )
        if tuple(found[name]) != shape:
            raise BadPretrained(
                f"the tensor `{name}` is {tuple(found[name])}, the configuration says {shape}",
                help="give the configuration that the checkpoint was saved with",
            )
    extra = [name for name in found if name not in wanted and name not in set(spare)]
    if extra:
        raise BadPretrained(
            f"the tensor `{extra[0]}` is not one of this model"
            + (f", nor are {len(extra) - 1} others" if len(extra) > 1 else ""),
            help="the model has no rule for it: is this the checkpoint of another architecture?",
        )
