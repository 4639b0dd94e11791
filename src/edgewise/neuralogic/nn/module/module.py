"""What a module is: called, it gives its rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgewise.errors import caller
from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.core.constructs.function import Function
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.core.constructs.predicate import PredicateMetadata
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.core.constructs.rule import TemplateRule
from edgewise.neuralogic.errors import BadSetting

Entry = TemplateRule | BaseRelation | PredicateMetadata  # of a template


class TemplateModule:
    """Rules under the names of its inputs and outputs: `model += Linear(4, 2, "out", "in")`.

    >>> from edgewise.neuralogic import Model
    >>> from edgewise.neuralogic.nn import Linear
    >>> model = Model()
    >>> model += Linear(4, 2, "out", "in")
    >>> print(model.to_program().rules[0].head)
    R.out(V.X0)["w0": 2, 4]
    """

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


def refuse_unread(name: str, value: object, default: object) -> None:
    """PyNeuraLogic's module reads this option nowhere: another value would do nothing."""
    if value != default:
        raise BadSetting(
            f"`{name}` is {value}, which PyNeuraLogic's module does not read either",
            caller(),
            f"leave `{name}` out, or write the rules of the module, which `module()` returns",
        )


Module = TemplateModule
