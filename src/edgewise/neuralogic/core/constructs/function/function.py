"""Functions of values by name; applied to relations they make a `FContainer`."""

from __future__ import annotations

from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.errors import BadTemplate

FLAT = ("sum", "elproduct", "max", "min")  # f(f(a, b), c) is written f(a, b, c)
OPERATORS = {"sum": "+", "elproduct": "*", "product": "@"}


class NamedFunction:
    """A function and its arguments; `ours` is its name in `edgewise.F`."""

    kind = ""

    def __init__(self, name: str, ours: str = "", **arguments: Any) -> None:
        self.name = name.lower()
        self.ours = ours or self.name
        self.arguments = {key: value for key, value in arguments.items() if value is not None}

    @property
    def operator(self) -> str | None:
        return OPERATORS.get(self.name) if self.kind == "combination" else None

    @property
    def can_flatten(self) -> bool:
        return self.kind == "combination" and self.name in FLAT

    def rule_head_dependant(self) -> bool:
        return False

    def is_parametrized(self) -> bool:
        return bool(self.arguments)

    def with_arguments(self, **arguments: Any) -> Any:
        return type(self)(self.name, self.ours, **arguments)

    def wrap(self, content: str) -> str:
        return f"{self.name}({content})"

    def pretty_str(self) -> str:
        return str(self).capitalize()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return str(self)


class TransformationFunction(NamedFunction):
    """A function of one value, such as tanh."""

    kind = "transformation"

    def __call__(self, relation: Any = None) -> Any:
        return self if relation is None else applied(self, relation)


def applied(function: TransformationFunction, relation: Any) -> Any:
    """A plain relation takes the function itself; others are put into a container."""
    from edgewise.neuralogic.core.constructs.function.function_container import FContainer
    from edgewise.neuralogic.core.constructs.relation import BaseRelation

    if not isinstance(relation, BaseRelation | FContainer):
        raise BadTemplate(
            f"`{function}` applies to a relation, got {safe_repr(relation)}",
            caller(),
            "write `F.tanh(R.a(V.X))`",
        )
    if type(relation) is BaseRelation and not relation.negated and relation.function is None:
        return relation.attach_activation_function(function)
    return FContainer((relation,), function)


class LeakyRelu(TransformationFunction):
    """`leakyrelu`, with a slope where one is written: `F.leaky_relu(0.2)`."""

    def __call__(self, relation: Any = None, slope: Any = None) -> Any:
        if isinstance(relation, int | float):  # `F.leaky_relu(0.2)`, `F.leaky_relu(0.2, R.a)`
            slope, relation = relation, slope
        function = self if slope is None else self.with_arguments(slope=float(slope))
        return function if relation is None else applied(function, relation)

    def __str__(self) -> str:
        slope = self.arguments.get("slope")
        return self.name if slope is None else f"{self.name}({slope})"


class Slice(TransformationFunction):
    """`slice(rows=(0, 2), cols=(1, 3))`: half-open ranges, or all of them."""

    def __call__(self, relation: Any = None, *, rows: Any = ..., cols: Any = ...) -> Any:
        ranges = {"rows": _range(rows), "cols": _range(cols)}
        function = self.with_arguments(**ranges)
        return function if relation is None else applied(function, relation)

    def __str__(self) -> str:
        return f"slice({self._shown()})"

    def wrap(self, content: str) -> str:
        return f"slice({content}, {self._shown()})"

    def _shown(self) -> str:
        shown = {key: list(value) for key, value in self.arguments.items()}
        return f"rows={shown.get('rows', '...')}, cols={shown.get('cols', '...')}"


def _range(item: Any) -> tuple[int, int] | None:
    if item is ...:
        return None
    try:
        first, last = (int(x) for x in item)
    except (TypeError, ValueError):
        raise BadTemplate(
            f"a range is two integers, got {safe_repr(item)}", caller(), "write `rows=(0, 2)`"
        ) from None
    return first, last


class Reshape(TransformationFunction):
    """`reshape(shape=(2, 3))`."""

    def __call__(self, relation: Any = None, *, shape: Any = None) -> Any:
        function = self.with_arguments(shape=(shape,) if isinstance(shape, int) else shape)
        return function if relation is None else applied(function, relation)

    def __str__(self) -> str:
        return f"reshape(shape={self.arguments.get('shape')})"

    def wrap(self, content: str) -> str:
        return f"reshape({content}, shape={self.arguments.get('shape')})"


class CombinationFunction(NamedFunction):
    """A function of the values of a body, such as the product."""

    kind = "combination"

    def __call__(self, *relations: Any) -> Any:
        from edgewise.neuralogic.core.constructs.function.function_container import FContainer

        return FContainer(relations, self) if relations else self


class AggregationFunction(NamedFunction):
    """A function of the values of all groundings, such as the average."""

    kind = "aggregation"

    def __call__(self) -> Any:
        return self


class ConcatCombination(CombinationFunction):
    """`concat`, with an axis where one is written."""

    def __call__(self, *relations: Any, axis: int = -1) -> Any:
        function = self if axis == -1 else self.with_arguments(axis=axis)
        return CombinationFunction.__call__(function, *relations) if relations else function

    def __str__(self) -> str:
        return f"concat(axis={self.arguments['axis']})" if self.arguments else "concat"


class ConcatAggregation(AggregationFunction):
    """`concat` of all groundings."""

    def __call__(self, *, axis: int = -1) -> Any:
        return self if axis == -1 else self.with_arguments(axis=axis)

    def __str__(self) -> str:
        return f"concat(axis={self.arguments['axis']})" if self.arguments else "concat"


class SoftmaxAggregation(AggregationFunction):
    """`softmax(agg_terms=["J"])`: over the rule heads that agree on the other terms."""

    def __call__(self, *, agg_terms: Any = None) -> Any:
        if agg_terms is None:
            return self
        names = [agg_terms] if isinstance(agg_terms, str) else list(map(str, agg_terms))
        for name in names:
            if not name[:1].isupper():
                raise BadTemplate(
                    f"softmax is over variables, got `{name}`", caller(), 'write `agg_terms=["J"]`'
                )
        return self.with_arguments(agg_terms=names)

    def rule_head_dependant(self) -> bool:
        return bool(self.arguments)

    def __str__(self) -> str:
        terms = self.arguments.get("agg_terms")
        return "softmax" if terms is None else f"softmax(agg_terms=[{', '.join(terms)}])"


Function = NamedFunction
