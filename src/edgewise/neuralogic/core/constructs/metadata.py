"""How a rule or a relation computes: at most one function of each kind, the last one written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.core.constructs.function.function import NamedFunction
from edgewise.neuralogic.errors import BadTemplate


@dataclass
class Metadata:
    """The functions of a rule or a relation, and whether equal groundings count again.

    >>> from edgewise.neuralogic import F
    >>> print(Metadata(transformation=F.tanh))
    [transformation=tanh]
    >>> print(Metadata.from_iterable([F.tanh, F.max_agg]), Metadata.of([F.tanh]))
    [transformation=tanh, aggregation=max] [transformation=tanh]
    >>> print(Metadata(learnable=False).combine(Metadata(transformation=F.tanh)))
    [learnable=false, transformation=tanh]
    """

    learnable: bool | None = None
    transformation: NamedFunction | None = None
    combination: NamedFunction | None = None
    aggregation: NamedFunction | None = None
    duplicate_grounding: bool | None = None

    def __post_init__(self) -> None:
        for kind in ("transformation", "combination", "aggregation"):
            function = getattr(self, kind)
            if function is not None and not isinstance(function, NamedFunction):
                raise BadTemplate(
                    f"`{safe_repr(function)}` is not a function",
                    caller(),
                    f"write `Metadata({kind}=F.{'sum_agg' if kind == 'aggregation' else 'sum'})`",
                )

    @staticmethod
    def from_iterable(iterable: Iterable[Any]) -> Metadata:
        """Each function takes the place of its kind: the last of a kind counts."""
        found = Metadata()
        for entry in iterable:
            if not isinstance(entry, NamedFunction):
                raise BadTemplate(
                    f"`{safe_repr(entry)}` is not a function",
                    caller(),
                    "write functions of `F`: `| [F.tanh]`",
                )
            setattr(found, entry.kind, entry)
        return found

    @staticmethod
    def of(item: Any) -> Metadata:
        """Metadata themselves, or a list of functions."""
        if isinstance(item, Metadata):
            return item
        if isinstance(item, Iterable) and not isinstance(item, str):
            return Metadata.from_iterable(item)
        raise BadTemplate(
            f"expected a list of functions, got {safe_repr(item)}", caller(), "write `| [F.tanh]`"
        )

    def combine(self, other: Metadata) -> Metadata:
        """These, with those of the other in their place where it has some."""
        written = {key: value for key, value in vars(other).items() if value is not None}
        return replace(self, **written)

    def __add__(self, other: Metadata) -> Metadata:
        return self.combine(other)

    def copy(self) -> Metadata:
        return replace(self)

    def __str__(self) -> str:
        shown = {key: value for key, value in vars(self).items() if value is not None}
        if self.learnable is not None:
            shown["learnable"] = str(self.learnable).lower()
        return f"[{', '.join(f'{key}={value}' for key, value in shown.items())}]"

    def __repr__(self) -> str:
        return str(self)
