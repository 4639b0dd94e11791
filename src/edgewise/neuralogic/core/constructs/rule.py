"""Rules: a head, a body, and how they compute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.core.constructs.function.function_container import FContainer
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.errors import BadTemplate


class RuleBody:
    """`R.a & R.b`: the literals of a body.

    >>> from edgewise.neuralogic import R, V
    >>> print(R.h(V.X) <= (R.a(V.X) & R.b(V.X)))
    h(X) :- a(X), b(X).
    """

    __slots__ = ("literals", "metadata")

    def __init__(self, *literals: Any) -> None:
        self.literals = list(literals)
        self.metadata: Metadata | None = None

    def __and__(self, other: Any) -> RuleBody:
        _literal(other)
        self.literals.append(other)
        return self

    def __or__(self, other: Any) -> RuleBody:
        self.metadata = Metadata.of(other)
        return self

    def __str__(self) -> str:
        return ", ".join(literal.to_str() for literal in self.literals)

    def __repr__(self) -> str:
        return str(self)


def _literal(item: Any) -> Any:
    from edgewise.neuralogic.core.constructs.relation import BaseRelation

    if not isinstance(item, BaseRelation | FContainer):
        raise BadTemplate(
            f"`{safe_repr(item)}` is not a relation",
            caller(),
            "a body is a relation, or a tuple or list of them",
        )
    return item


class TemplateRule:
    """`head <= body`; the body may be any iterable of relations.

    >>> from edgewise.neuralogic import R, V
    >>> rule = R.h(V.X) <= [R.a(V.X), R.b(V.X)]
    >>> print(rule.head, len(rule.body))
    h(X). 2
    """

    __slots__ = ("body", "head", "metadata", "place")

    def __init__(self, head: Any, body: Any) -> None:
        self.head = head
        self.place = caller()
        self.metadata: Metadata | None = None
        if head.function is not None or head.negated:
            raise BadTemplate(
                f"the rule head `{head}` has a function or a negation",
                self.place,
                "write it in the body",
            )
        if isinstance(body, RuleBody):
            self.metadata = None if body.metadata is None else self._checked(body.metadata)
            body = body.literals
        if isinstance(body, FContainer):
            self.body: Any = body
        else:
            items = list(body) if isinstance(body, Iterable) else [body]
            self.body = [_literal(item) for item in items]

    def __and__(self, other: Any) -> TemplateRule:
        more = list(other) if isinstance(other, Iterable) else [other]
        self.body.extend(map(_literal, more))
        return self

    def __or__(self, other: Any) -> TemplateRule:
        self.metadata = self._checked(Metadata.of(other))
        return self

    def _checked(self, metadata: Metadata) -> Metadata:
        terms = getattr(metadata.aggregation, "arguments", {}).get("agg_terms") or ()
        missing = [term for term in terms if term not in map(str, self.head.terms)]
        if missing:
            raise BadTemplate(
                f"softmax is over `{missing[0]}`, which is not in the rule head `{self.head}`",
                self.place,
                "name variables of the rule head",
            )
        return metadata

    def to_str(self, _: bool = False) -> str:
        return str(self)

    def __str__(self) -> str:
        shown = "" if self.metadata is None else f" {self.metadata}"
        if isinstance(self.body, FContainer):
            return f"{self.head.to_str()} :- {self.body.to_str()}.{shown}"
        return f"{self.head.to_str()} :- {', '.join(a.to_str() for a in self.body)}.{shown}"

    def __repr__(self) -> str:
        return str(self)


Rule = TemplateRule
