"""What a module is: called, it gives its rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.core.constructs.relation import BaseRelation


class TemplateModule:
    """Rules under the names of its inputs and outputs: `model += Linear(4, 2, "out", "in")`."""

    def __call__(self) -> list[Any]:
        raise NotImplementedError


def terms(arity: int) -> list[str]:
    """X0, X1, ..."""
    return [f"X{i}" for i in range(arity)]


def atom(name: str, items: Iterable[Any] = ()) -> BaseRelation:
    return R.get(name)(list(items))


def line(name: str, arity: int, transformation: Any, **functions: Any) -> Any:
    """`R.name/arity | [...]`."""
    return R.get(name) / arity | Metadata(transformation=transformation, **functions)


def chained(items: Sequence[Any]) -> list[Any]:
    return [one for item in items for one in item]


Module = TemplateModule
