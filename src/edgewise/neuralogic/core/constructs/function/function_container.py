"""Expressions over relations in a body: `R.a + R.b * R.c`, `F.tanh(R.a + R.b)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from edgewise.errors import caller
from edgewise.language.text_form.tokens import MAX_DEPTH
from edgewise.neuralogic.core.constructs.function.enum import Combination
from edgewise.neuralogic.core.constructs.function.function import NamedFunction
from edgewise.neuralogic.errors import BadTemplate


class Combinable:
    """What can be combined by `+`, `*` and `@`."""

    __slots__ = ()

    def __add__(self, other: Any) -> FContainer:
        return FContainer((self, other), Combination.SUM)

    def __mul__(self, other: Any) -> FContainer:
        return FContainer((self, other), Combination.ELPRODUCT)

    def __matmul__(self, other: Any) -> FContainer:
        return FContainer((self, other), Combination.PRODUCT)


class FContainer(Combinable):
    """A function of relations and of other containers."""

    __slots__ = ("depth", "function", "nodes")

    def __init__(self, nodes: Any, function: NamedFunction) -> None:
        found = tuple(nodes) if isinstance(nodes, tuple | list) else (nodes,)
        self.function = function
        self.nodes = self._flattened(found) if function.can_flatten else found
        inner: list[int] = [node.depth for node in self.nodes if isinstance(node, FContainer)]
        self.depth: int = 1 + max(inner, default=0)
        if self.depth > MAX_DEPTH:
            raise BadTemplate(
                f"the expression is nested too deep, more than {MAX_DEPTH} functions",
                caller(),
                "give a part a rule of its own",
            )

    def _flattened(self, nodes: Iterable[Any]) -> tuple[Any, ...]:
        found: list[Any] = []
        for node in nodes:
            is_same = isinstance(node, FContainer) and node.function.name == self.function.name
            found += node.nodes if is_same else [node]
        return tuple(found)

    def __iter__(self) -> Iterator[Any]:
        for node in self.nodes:
            if isinstance(node, FContainer):
                yield from node
            else:
                yield node

    def __str__(self) -> str:
        if self.function.operator is not None:
            shown = (
                n.to_str(True) if isinstance(n, FContainer) else n.to_str() for n in self.nodes
            )
            return f" {self.function.operator} ".join(shown)
        return f"{self.function}({', '.join(node.to_str() for node in self.nodes)})"

    def __repr__(self) -> str:
        return str(self)

    def to_str(self, parentheses_wrap: bool = False) -> str:
        is_open = parentheses_wrap and self.function.operator is not None
        return f"({self})" if is_open else str(self)
