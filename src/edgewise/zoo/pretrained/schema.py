"""How checkpoints spell a model: the fields of `config.json`, checked, and the names of tensors."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, nearest
from edgewise.language import F
from edgewise.language.nodes import Function
from edgewise.language.program import Program
from edgewise.language.statements import name_weights, weights
from edgewise.language.terms import variables

LARGEST = 1 << 20  # of a size
MAX_LAYERS = 1000
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_python": F.gelu,
    "gelu_new": F.gelu_tanh,
    "gelu_pytorch_tanh": F.gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": F.tanh,
}
Shape = tuple[int, ...]


class BadPretrained(EdgewiseError):
    """A checkpoint must hold exactly the tensors of the model, each in its shape."""

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


class Fields:
    """A configuration whose fields are checked as they are read."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table

    def read(self, names: Mapping[str, str], **defaults: Any) -> dict[str, Any]:
        """The fields of a `Config` by the names they have here, each read as what it is."""
        found = {
            ours: READERS.get(ours, Fields.size)(self, theirs, default=defaults.get(ours))
            for ours, theirs in names.items()
        }
        head_size(found["size"], found["heads"], names["size"])
        return found

    def size(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A positive integer, under the first of its names that is there."""
        value = self._found(names, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise self._bad(names[0], value, f"an integer from {least} to {LARGEST:,}")
        return value

    def layers(self, *names: str, default: int | None = None) -> int:
        """A number of layers."""
        value = self.size(*names, default=default)
        if value > MAX_LAYERS:
            raise self._bad(names[0], value, f"at most {MAX_LAYERS:,}")
        return value

    def number(self, *names: str, default: float | None = None, most: float = math.inf) -> float:
        """A number ≥ 0."""
        value = self._found(names, default)
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        if not fine or not 0 <= value <= min(most, sys.float_info.max):
            raise self._bad(names[0], value, "a number ≥ 0")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.table.get(name, default)
        if not isinstance(value, bool):
            raise self._bad(name, value, "true or false")
        return value

    def rate(self, *names: str, default: float | None = 0.0) -> float:
        """A probability below 1."""
        value = self.number(*names, default=default)
        if value >= 1:
            raise self._bad(names[0], value, "a probability below 1")
        return value

    def activation(self, *names: str, default: str | None = None) -> Function:
        value = self._found(names, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self._bad(names[0], value, f"one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def fixed(self, name: str, wanted: Any, *others: Any) -> None:
        """A field of which the rules support one value."""
        value = self.table.get(name, wanted)
        if value != wanted and value not in others:
            raise self._bad(name, value, f"{wanted!r}: nothing else is supported")

    def _found(self, names: tuple[str, ...], default: Any) -> Any:
        for name in names:
            if self.table.get(name) is not None:
                return self.table[name]
        if default is None:
            raise BadPretrained(
                f"the configuration has no `{names[0]}`", help="the `config.json` is incomplete"
            )
        return default

    def _bad(self, name: str, value: Any, wanted: str) -> BadPretrained:
        shown = repr(value)[:60]
        return BadPretrained(
            f"the configuration has `{name}` = {shown}", help=f"it must be {wanted}"
        )


READERS: dict[str, Any] = {  # of the fields that are not sizes
    "layers": Fields.layers,
    "activation": Fields.activation,
    "eps": Fields.number,
    "dropout": Fields.rate,
}


def written(config: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `config.json`: what `Fields.read` reads back."""
    found = {theirs: getattr(config, ours) for ours, theirs in names.items()}
    return {n: activation_name(v) if isinstance(v, Function) else v for n, v in found.items()}


def activation_name(function: Function) -> str:
    """The name of an activation in `config.json`."""
    for name, known in ACTIVATIONS.items():
        if known == function:
            return name
    raise BadPretrained(
        f"`transformers` has no name for the activation `{function}`",
        help=f"it has {', '.join(ACTIVATIONS)}",
    )


def head_size(count: int, heads: int, name: str) -> int:
    """count / heads, which must be an integer."""
    if count % heads:
        raise BadPretrained(
            f"`{name}` = {count} is not a multiple of {heads} heads",
            help="give the configuration that the checkpoint was saved with",
        )
    return count // heads


@dataclass(frozen=True)
class TensorEntry:
    """A weight of ours and the tensor of a checkpoint that holds it.

    `joined`: so many leading axes of ours (heads, head size) are one axis there. `transposed`: the
    matrix is (in, out) there. `chunk` (k, n): ours is the k-th of n equal chunks of the last axis.
    `shape`: the tensor's shape, if none of these gives it.
    """

    ours: str
    theirs: str
    joined: int = 1
    transposed: bool = False
    chunk: tuple[int, int] = (0, 1)
    shape: Shape | None = None

    def their_shape(self, ours: Shape) -> Shape:
        """The shape of the tensor in the checkpoint.

        >>> TensorEntry(
        ...     "q.weight", "attn.qkv", joined=2, transposed=True, chunk=(0, 3)
        ... ).their_shape((2, 4, 8))
        (8, 24)
        """
        if self.shape is not None:
            return self.shape
        flat = (math.prod(ours[: self.joined]), *ours[self.joined :])
        flat = flat[::-1] if self.transposed else flat
        return (*flat[:-1], flat[-1] * self.chunk[1])

    def read(self, theirs: Tensor, ours: Shape) -> Tensor:
        k, n = self.chunk
        chunk = theirs.chunk(n, -1)[k] if n > 1 else theirs
        return (chunk.T if self.transposed else chunk).reshape(ours)

    def write(self, ours: Tensor) -> Tensor:
        if self.shape is not None:
            return ours.reshape(self.shape)
        flat = ours.flatten(0, self.joined - 1) if self.joined > 1 else ours
        return flat.T if self.transposed else flat


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
    parts: dict[str, dict[int, Tensor]] = {}
    for entry in entries:
        if entry.ours in ours:
            parts.setdefault(entry.theirs, {})[entry.chunk[0]] = entry.write(ours[entry.ours])
    return {
        name: torch.cat([found[k] for k in sorted(found)], -1).contiguous()
        for name, found in parts.items()
    }


def check_tensors(
    entries: Sequence[TensorEntry],
    found: Mapping[str, Shape],
    shapes: Mapping[str, Shape],
    optional: Iterable[str],
) -> None:
    """Refuse a checkpoint in which a tensor is missing, extra or of another shape."""
    wanted = {e.theirs: e.their_shape(shapes[e.ours]) for e in entries}
    for name, shape in wanted.items():
        if name not in found:
            near = nearest(name, [n for n in found if n not in wanted])
            raise BadPretrained(
                f"the tensor `{name}` is missing",
                help=f"there is `{near}`"
                if near
                else "the checkpoint is incomplete: save it again",
            )
        if tuple(found[name]) != shape:
            raise BadPretrained(
                f"the tensor `{name}` is {tuple(found[name])}, the configuration says {shape}",
                help="give the configuration that the checkpoint was saved with",
            )
    extra = [name for name in found if name not in wanted and name not in set(optional)]
    if extra:
        raise BadPretrained(
            f"the tensor `{extra[0]}` does not belong to this model"
            + (f", nor do {len(extra) - 1} others" if len(extra) > 1 else ""),
            help="is this a checkpoint of another architecture?",
        )


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
