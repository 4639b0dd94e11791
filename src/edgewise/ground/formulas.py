"""Comparisons of integer expressions, such as `I - J <= 5`, on columns of keys."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.index import STRINGS
from edgewise.language.term_expressions import Formula, Tree, solved

Column = Any  # int64 numbers, or Python's where those could overflow; an integer is all of a column
ARITHMETIC: dict[str, Callable[..., Column]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "abs": abs,
}  # fmt: skip
COMPARE: dict[str, Callable[..., Column]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def holds(formula: Formula, columns: Sequence[Tensor]) -> Tensor:
    """Where both sides compare as the formula says; nowhere on strings or dividing by 0."""
    arithmetic = _Arithmetic(formula, columns, len(columns[0]))
    left, right = arithmetic.value(formula.left), arithmetic.value(formula.right)
    true = np.asarray(COMPARE[formula.sign](left, right), dtype=bool)
    return torch.from_numpy(arithmetic.fine & true)


def computed(
    formula: Formula, columns: Sequence[Tensor | None], count: int
) -> tuple[Tensor, Tensor]:
    """The missing term of an equation, and where it has a value, which may be larger than a key."""
    missing = next(at for at, column in enumerate(columns) if column is None)
    arithmetic = _Arithmetic(formula, columns, count)
    found = solved(formula, missing, arithmetic.value)
    found = np.broadcast_to(np.asarray(found), arithmetic.fine.shape)
    keys = np.clip(np.where(arithmetic.fine, found, 0), -STRINGS, STRINGS).astype(np.int64)
    return torch.from_numpy(keys), torch.from_numpy(arithmetic.fine)


def numbers(tree: Tree, columns: Sequence[Tensor], count: int) -> tuple[Column, np.ndarray]:
    """The values of a tree, and in which rows it has one."""
    arithmetic = _Arithmetic(Formula("==", tree, 0), columns, count)
    values = np.asarray(arithmetic.value(tree))
    return np.broadcast_to(values, arithmetic.fine.shape), arithmetic.fine


class _Arithmetic:
    """Computes sides of a formula; `fine` says in which rows that is possible."""

    def __init__(self, formula: Formula, columns: Sequence[Tensor | None], count: int) -> None:
        known = [column for column in columns if column is not None]
        self.fine = np.ones(count, dtype=bool)
        for column in known:
            self.fine &= (column < STRINGS).numpy()
        self.columns: list[Column] = [
            None if column is None else np.where(self.fine, column.numpy(), 0) for column in columns
        ]
        if self._most(formula.left) + self._most(formula.right) >= 1 << 63:
            self.columns = [None if c is None else c.astype(object) for c in self.columns]

    def value(self, tree: Tree) -> Column:
        if isinstance(tree, int):
            return tree
        name, *operands = tree
        if name == "term":
            return self.columns[operands[0]]  # type: ignore[index]
        values = [self.value(operand) for operand in operands]
        if name in ("//", "%"):
            able = np.asarray(values[1] != 0, dtype=bool)
            self.fine = self.fine & able
            values[1] = np.where(able, values[1], 1)
        return ARITHMETIC[name](*values)

    def _most(self, tree: Tree) -> int:
        """No value of a tree is larger, whatever its sign."""
        if isinstance(tree, int):
            return abs(tree)
        name, *operands = tree
        if name == "term":
            column = self.columns[operands[0]]  # type: ignore[index]
            return 0 if column is None or not len(column) else int(abs(column).max())
        sizes = [self._most(operand) for operand in operands]
        if name == "*":
            return sizes[0] * sizes[1]
        # what is rounded down is at most one further from 0
        return sum(sizes) + 1
