"""The fields of a `config.json`, checked as they are read."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.language import F
from edgewise.language.nodes import Function

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

    def read(
        self, names: Mapping[str, str], *, head_size: bool = False, **defaults: Any
    ) -> dict[str, Any]:
        """The fields of a `Config` by the names they have here, each read as what it is.

        The size of a head is size / heads, an integer, unless `head_size` says that it is a field.
        """
        found: dict[str, Any] = {}
        for ours, theirs in names.items():
            usual = found.get("dropout") if ours == "attention_dropout" else None
            how = {"default": defaults.get(ours, usual)}
            found[ours] = READERS.get(ours, Fields.size)(self, theirs, **how)
        if not head_size:
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
        value = self.table.get(name)
        if value is not None and value != wanted:
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
    "attention_dropout": Fields.rate,
}


def written(config: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `config.json`: what `Fields.read` reads back."""
    found = {theirs: getattr(config, ours) for ours, theirs in names.items()}
    if "attention_dropout" in names and config.attention_dropout is None:
        found[names["attention_dropout"]] = config.dropout
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
