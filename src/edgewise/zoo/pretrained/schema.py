"""What a file of `architectures/` declares about a model type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from edgewise.errors import EdgewiseError, raise_all
from edgewise.zoo.pretrained.fields import BadPretrained, Fields
from edgewise.zoo.pretrained.tensors import TensorEntry

# the special tokens of a configuration
TOKENS = tuple(f"{name}_token_id" for name in ("bos", "eos", "pad", "decoder_start"))


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


def table_of(
    spec: CheckpointSpec, config: Any, architecture: str, found: Collection[str]
) -> list[TensorEntry]:
    """The tensors of an architecture: the body, its task heads, and optional ones of `found`.

    `found` are names of tensors, or of our weights.
    """
    prefix, heads, _ = spec.ARCHITECTURES[architecture]
    known = spec.task_heads(config, prefix)
    entries = [*spec.entries(config, prefix), *(e for head in heads for e in known[head])]
    held = {e.ours for e in entries}
    for relation in spec.OPTIONAL:
        own = known[relation]
        if relation not in heads and not any(e.ours in held for e in own):
            entries += own if any({e.ours, e.theirs} & set(found) for e in own) else []
    return entries


@dataclass(frozen=True)
class TextPart:
    """A model type whose `text_config` is that of another one.

    - names: what names of its tensors begin with → what they begin with in that one.
    - others: what names of all other tensors begin with.
    - defaults: fields that its `text_config` may leave out.
    """

    model_type: str
    architecture: str
    names: Mapping[str, str]
    others: tuple[str, ...]
    defaults: Mapping[str, Any]

    def table(self, outer: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of the text part."""
        inner = outer.get("text_config")
        if not isinstance(inner, dict):
            raise BadPretrained(
                "the configuration has no `text_config`", help="the `config.json` is incomplete"
            )
        own = {k: v for k, v in outer.items() if not k.endswith("_config")}
        named = {"model_type": self.model_type, "architectures": [self.architecture]}
        return {**self.defaults, **own, **inner, **named}

    def name(self, tensor: str) -> str | None:
        """The name of a tensor in a checkpoint of the text part alone; None of another part."""
        for theirs, ours in self.names.items():
            if tensor.startswith(theirs):
                return ours + tensor.removeprefix(theirs)
        return None if tensor.startswith(self.others) else tensor

    def only(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of the text part, by those names."""
        named: Iterable[tuple[str | None, Any]] = ((self.name(n), t) for n, t in tensors.items())
        return {name: tensor for name, tensor in named if name is not None}
