"""Relations with terms, weights, functions and negation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.core.constructs.function.enum import Transformation
from edgewise.neuralogic.core.constructs.function.function_container import Combinable
from edgewise.neuralogic.core.constructs.predicate import Predicate
from edgewise.neuralogic.core.constructs.rule import RuleBody, TemplateRule
from edgewise.neuralogic.errors import BadTemplate


class BaseRelation(Combinable):
    """`R.a(V.X)`, perhaps with a function of its value, or negated."""

    __slots__ = ("function", "negated", "predicate", "terms")

    def __init__(
        self, predicate: Predicate, terms: Any = None, function: Any = None, negated: bool = False
    ) -> None:
        self.predicate = predicate
        self.function = function
        self.negated = negated
        self.terms: list[Any] = []
        items = terms if isinstance(terms, Iterable) and not isinstance(terms, str) else [terms]
        for term in items:
            if isinstance(term, list):
                self.terms += term
            elif term is not None:
                self.terms.append(term)

    def __call__(self, *args: Any) -> BaseRelation:
        if self.terms:
            raise BadTemplate(
                f"`{self}` has its terms already", caller(), "write them once: `R.a(V.X, V.Y)`"
            )
        is_list = len(args) == 1 and isinstance(args[0], Iterable) and not isinstance(args[0], str)
        found = BaseRelation(self.predicate, list(args[0] if is_list else args))
        old = self.predicate
        found.predicate = Predicate(old.name, len(found.terms), old.hidden, old.special)
        found.function, found.negated = self.function, self.negated
        return found

    def __getitem__(self, item: Any) -> WeightedRelation:
        if self.predicate.hidden or self.predicate.special:
            raise BadTemplate(
                f"`{self}` is hidden or special and carries no value",
                caller(),
                "leave the weight out",
            )
        return WeightedRelation(item, self.predicate, False, self.terms, self.function)

    def attach_activation_function(self, function: Any) -> BaseRelation:
        if self.negated:
            raise BadTemplate(
                f"`{self}` is negated and carries no value", caller(), "leave the function out"
            )
        found = BaseRelation(self.predicate, None, function)
        found.terms = self.terms
        return found

    def __neg__(self) -> BaseRelation:
        return self.attach_activation_function(Transformation.REVERSE)

    @property
    def T(self) -> BaseRelation:
        """The transpose."""
        return self.attach_activation_function(Transformation.TRANSP)

    def __invert__(self) -> BaseRelation:
        if self.function is not None:
            raise BadTemplate(
                f"`{self}` has a function and cannot be negated", caller(), "write `-R.a` for 1 - a"
            )
        old = self.predicate
        found = BaseRelation(Predicate(old.name, old.arity, True, old.special))
        found.terms, found.negated = self.terms, not self.negated
        return found

    def __truediv__(self, other: int) -> Predicate:
        if not isinstance(other, int) or isinstance(other, bool) or other < 0 or self.terms:
            raise BadTemplate(
                f"an arity is a number of terms, got {safe_repr(other)}", caller(), "write `R.h/1`"
            )
        old = self.predicate
        return Predicate(old.name, other, old.hidden, old.special)

    def __le__(self, other: Any) -> TemplateRule:
        return TemplateRule(self, other)

    def __and__(self, other: Any) -> RuleBody:
        return RuleBody(self) & other

    def to_str(self, end: bool = False) -> str:
        terms = f"({', '.join(map(str, self.terms))})" if self.terms else ""
        shown = f"{'!' if self.negated else ''}{self.predicate.to_str()}{terms}"
        shown = shown if self.function is None else self.function.wrap(shown)
        return f"{shown}{'.' if end else ''}"

    def __str__(self) -> str:
        return self.to_str(True)

    def __repr__(self) -> str:
        return str(self)


class WeightedRelation(BaseRelation):
    """A relation with a weight or a value in brackets."""

    __slots__ = ("is_fixed", "weight", "weight_name")

    def __init__(
        self, weight: Any, predicate: Predicate, fixed: bool, terms: Any, function: Any = None
    ) -> None:
        super().__init__(predicate, None, function)
        self.terms = terms
        self.weight_name: str | None = None
        self.is_fixed = fixed
        if isinstance(weight, slice):
            self.weight_name, weight = str(weight.start), weight.stop
        elif isinstance(weight, tuple) and weight and isinstance(weight[0], slice):
            self.weight_name, weight = str(weight[0].start), (weight[0].stop, *weight[1:])
        self.weight = (
            weight.tolist() if hasattr(weight, "tolist") and self._is_array(weight) else weight
        )

    @staticmethod
    def _is_array(weight: Any) -> bool:
        return type(weight).__module__.startswith("numpy")

    def fixed(self) -> WeightedRelation:
        if self.is_fixed:
            raise BadTemplate(f"`{self}` is fixed already", caller(), "write `.fixed()` once")
        found = WeightedRelation(self.weight, self.predicate, True, self.terms, self.function)
        found.weight_name = self.weight_name
        return found

    def _refused(self, what: str, help: str) -> BadTemplate:
        return BadTemplate(f"`{self}` has a weight: {what}", caller(), help)

    def __call__(self, *args: Any) -> BaseRelation:
        raise self._refused("terms come before it", "write `R.a(V.X)[1, 2]`")

    def __getitem__(self, item: Any) -> WeightedRelation:
        raise self._refused("it cannot have two", "write one weight")

    def attach_activation_function(self, function: Any) -> BaseRelation:
        raise self._refused("functions come before it", "write `F.tanh(R.a(V.X))[1, 2]`")

    def __invert__(self) -> BaseRelation:
        raise self._refused("it cannot be negated", "leave the weight out")

    def to_str(self, end: bool = False) -> str:
        is_shape = isinstance(self.weight, tuple)
        shown = f"{{{', '.join(map(str, self.weight))}}}" if is_shape else str(self.weight)
        shown = f"${self.weight_name}={shown}" if self.weight_name else shown
        return f"{f'<{shown}>' if self.is_fixed else shown} {super().to_str(end)}"
