"""What a file of `architectures/` says of a model type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from edgewise.errors import EdgewiseError, raise_all
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.tensors import TensorEntry


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
