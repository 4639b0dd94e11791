"""How checkpoints spell a model: the fields of `config.json`, checked, and the names of tensors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, nearest, raise_all
from edgewise.language import F
from edgewise.language.nodes import Function
from edgewise.language.program import Program
from edgewise.language.statements import name_weights, weights
from edgewise.language.terms import variables

LARGEST = 1 << 20  # of a size
MAX_LAYERS = 1000
MOST_SHOWN = 12  # problems with tensors
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
MISSING = object()  # a field that is not there


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
    """A configuration whose fields are checked as they are read: `problems` are what is wrong."""

    def __init__(
        self, table: Mapping[str, Any], problems: list[BadPretrained] | None = None
    ) -> None:
        self.table = table
        self.problems: list[BadPretrained] = [] if problems is None else problems

    def read(self, names: Mapping[str, str], **defaults: Any) -> dict[str, Any]:
        """The fields of a `Config` by the names they have here, each read as what it is."""
        found = {
            ours: READERS.get(ours, Fields.size)(self, theirs, default=defaults.get(ours))
            for ours, theirs in names.items()
        }
        self.divided(found["size"], found["heads"], names["size"])
        return found

    def size(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A positive integer, under the first of its names that is there."""
        value = self._found(names, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            return self.refuse(names[0], value, f"an integer from {least} to {LARGEST:,}", least)
        return value

    def layers(self, *names: str, default: int | None = None) -> int:
        """A number of layers."""
        value = self.size(*names, default=default)
        if value > MAX_LAYERS:
            return self.refuse(names[0], value, f"at most {MAX_LAYERS:,}", 1)
        return value

    def number(self, *names: str, default: float | None = None, most: float = math.inf) -> float:
        """A number ≥ 0."""
        value = self._found(names, default)
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        if not fine or not 0 <= value <= min(most, sys.float_info.max):
            return self.refuse(names[0], value, "a number ≥ 0", 1.0)
        return float(value)

    def positive(self, *names: str, default: float | None = None) -> float:
        """A number > 0."""
        value = self.number(*names, default=default)
        return value or self.refuse(names[0], value, "a number > 0", 1.0)

    def cap(self, name: str, default: float | None) -> float | None:
        """A positive number, or null."""
        value = self.table.get(name, default)
        return None if value is None else self.positive(name, default=default)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.table.get(name, default)
        if not isinstance(value, bool):
            return self.refuse(name, value, "true or false", default)
        return value

    def rate(self, *names: str, default: float | None = 0.0) -> float:
        """A probability below 1."""
        value = self.number(*names, default=default)
        if value >= 1:
            return self.refuse(names[0], value, "a probability below 1", 0.0)
        return value

    def activation(self, *names: str, default: str | None = None) -> Function:
        value = self._found(names, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            return self.refuse(names[0], value, f"one of {', '.join(ACTIVATIONS)}", F.gelu)
        return ACTIVATIONS[value]

    def choice(self, name: str, *known: Any) -> Any:
        """One of some values, the first where there is none."""
        value = self.table.get(name, known[0])
        if not any(value == k and type(value) is type(k) for k in known):
            shown = ", ".join(map(repr, known))
            return self.refuse(name, value, f"{shown}: nothing else is supported", known[0])
        return value

    def fixed(self, name: str, wanted: Any, *others: Any) -> None:
        """A field of which the rules support one value."""
        value = self.table.get(name, wanted)
        if value != wanted and value not in others:
            self.refuse(name, value, f"{wanted!r}: nothing else is supported", None)

    def equal(self, name: str, other: str, wanted: Any) -> None:
        """A field that must be what another one is, where it is there."""
        value = self.table.get(name, wanted)
        if value != wanted:
            self.refuse(name, value, f"{wanted!r}, as `{other}` is", None)

    def divided(self, count: int, parts: int, name: str, what: str = "heads") -> int:
        """count / parts, which must be an integer."""
        if count % parts:
            message = f"`{name}` = {count} is not a multiple of {parts} {what}"
            self.problem(message, "give the configuration that the checkpoint was saved with")
        return max(count // parts, 1)

    def inside(self, *names: str) -> Fields:
        """The first of these fields that is there, a JSON object, as fields of their own."""
        for name in names:
            table = self.table.get(name)
            if isinstance(table, dict):
                return Fields(table, self.problems)
            if table is not None:
                self.refuse(name, table, "a JSON object", None)
        return Fields({}, self.problems)

    def labels(self) -> int:
        """The number of classes of a classifier: 2 where nothing is said."""
        named = self.table.get("id2label")
        if named is None:
            return self.size("num_labels", default=2)
        if not isinstance(named, dict) or not 0 < len(named) <= LARGEST:
            return self.refuse("id2label", named, "a JSON object of the classes", 2)
        return len(named)

    def _found(self, names: tuple[str, ...], default: Any) -> Any:
        for name in names:
            if self.table.get(name) is not None:
                return self.table[name]
        if default is None:
            self.problem(
                f"the configuration has no `{names[0]}`", "the `config.json` is incomplete"
            )
            return MISSING
        return default

    def refuse(self, name: str, value: Any, wanted: str, instead: Any) -> Any:
        """Note a field that is wrong; reading continues with `instead`."""
        if value is not MISSING:
            shown = repr(value)[:60]
            self.problem(f"the configuration has `{name}` = {shown}", f"it must be {wanted}")
        return instead

    def problem(self, message: str, help: str) -> None:
        if all(known.message != message for known in self.problems):
            self.problems.append(BadPretrained(message, help=help))


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


class Architecture(NamedTuple):
    """A class of `transformers`: what its tensors' names begin with, and its task heads.

    `output` is the relation that it is for, by default that of its model type.
    """

    prefix: str
    heads: tuple[str, ...] = ()
    output: str = ""


class CheckpointSpec(Protocol):
    """What a file of `architectures/` says; see its `__init__`."""

    @property
    def MODEL_TYPE(self) -> str: ...
    @property
    def MODEL(self) -> ModuleType: ...
    @property
    def OUTPUT(self) -> str: ...
    @property
    def ARCHITECTURES(self) -> Mapping[str, Architecture]: ...
    @property
    def OPTIONAL(self) -> Sequence[str]: ...
    @property
    def TIED(self) -> Mapping[str, str]: ...
    @property
    def read_config(self) -> Callable[[Fields], Any]: ...
    @property
    def write_config(self) -> Callable[[Any], dict[str, Any]]: ...
    @property
    def entries(self) -> Callable[[Any, str], Iterable[TensorEntry]]: ...
    @property
    def task_heads(self) -> Callable[[Any, str], Mapping[str, Sequence[TensorEntry]]]: ...


def read_config(spec: CheckpointSpec, table: Mapping[str, Any]) -> Any:
    """The `Config` of a `config.json`, or all that is wrong with it."""
    fields = Fields(table)
    try:
        config = spec.read_config(fields)
    except EdgewiseError:  # of a `Config`, about values that stand for wrong ones
        if not fields.problems:
            raise
    raise_all(fields.problems)
    return config


@dataclass(frozen=True)
class TensorEntry:
    """A weight of ours and the tensor of a checkpoint that holds it.

    `joined`: so many leading axes of ours (heads, head size) are one axis there. `part` (axis,
    start, n): ours is a piece of an axis of n. `order`: the axes of the tensor in our order; a
    matrix that is (in, out) there has (1, 0). `shape`: the tensor's shape, if none of these gives
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
