"""What a module is: called, it gives its rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.core.constructs.function import Function
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.core.constructs.predicate import PredicateMetadata
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.core.constructs.rule import TemplateRule

Entry = TemplateRule | BaseRelation | PredicateMetadata  # of a template


class TemplateModule:
    """Rules under the names of its inputs and outputs: `model += Linear(4, 2, "out", "in")`."""

    def __call__(self) -> list[Entry]:
        """Its rules, facts and lines."""
        raise NotImplementedError


def terms(arity: int) -> list[str]:
    """X0, X1, ..."""
    return [f"X{i}" for i in range(arity)]


def atom(name: str, items: Iterable[Any] = ()) -> BaseRelation:
    """`R.name(items...)`."""
    return R.get(name)(list(items))


def line(
    name: str, arity: int, transformation: Function, combination: Function | None = None
) -> PredicateMetadata:
    """`R.name/arity | [...]`."""
    return R.get(name) / arity | Metadata(transformation=transformation, combination=combination)


Module = TemplateModule
