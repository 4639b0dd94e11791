"""The fields of a `config.json`, each checked: sizes are integers, rates are probabilities."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from edgewise.language import F
from edgewise.language.nodes import Function
from edgewise.zoo.pretrained.entries import BadPretrained

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
