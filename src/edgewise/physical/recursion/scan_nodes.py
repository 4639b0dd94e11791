"""Nodes of a graph as instructions of a loop over levels."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from inspect import unwrap
from math import prod
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node
from torch.nn.functional import linear

from edgewise.functions import DEFINITIONS
from edgewise.kernels.scan import Instruction, ScanBuilder
from edgewise.kernels.scan.program import FUNCTIONS
from edgewise.physical.functions import aggregate_segments
from edgewise.physical.lowering import Lowering, input_node
from edgewise.physical.symbols import Symbol

AGGREGATE = unwrap(aggregate_segments)


class NotScannedError(Exception):
    """Internal: why a recursion is computed level by level."""


class NodeWriter:
    """Writes what reads a recursion as instructions; other values are columns that are there
    before the loop, and matrices."""

    def __init__(self, lowering: Lowering, batch: int, inside: set[Node]) -> None:
        self.lowering, self.batch = lowering, batch
        self.inside = inside  # nodes that read the recursion
        self.builder = ScanBuilder(batch)
        self.slots: dict[Node, int] = {}
        self.columns: list[Tensor] = []
        self.matrices: dict[Node, int] = {}
        self.sources: dict[Node, int] = {}  # of products that are computed before the loop
        self.rows: list[int] = []  # of each domain
        self.heads = -1  # the domain of rule heads, where groundings are aggregated

    def domain(self, levels: np.ndarray, count: int) -> int:
        """Rows by the ascending level of each."""
        found = self.builder.domain(levels, count)
        if found == len(self.rows):
            self.rows.append(len(levels))
        return found

    def slot(self, value: Tensor, domain: int) -> int:
        """The slot of a value over the rows of a domain."""
        assert isinstance(value, Symbol)
        node = self.lowering.node(value)
        if not self.inside.isdisjoint(node.all_input_nodes):
            self.inside.add(node)  # a reshape, which is written down when it is first read
        return self._of(node, domain)

    def input(self, column: Tensor, rows: int, width: int) -> int:
        """The slot of a column that is there before the loop."""
        flat = column.reshape(column.shape[0], column.shape[1], width)
        if flat.shape[1] not in (1, rows) or flat.shape[0] not in (1, self.batch):
            raise NotScannedError("a value has other rows than groundings")
        self.columns.append(self.lowering.lifted(flat))
        return self.builder.input(rows, width)

    def _of(self, node: Node, domain: int) -> int:
        if node in self.slots:
            return self.slots[node]
        if node not in self.inside:
            return self.input(self.lowering.symbol(node), self.rows[domain], _width(node))
        self.slots[node] = made = self._instruction(node, domain)
        return made

    def _instruction(self, node: Node, domain: int) -> int:
        target: Any = node.target
        if target == "reshape":
            return self._reshaped(node, domain)
        if target == "index_select":
            return self._gathered(node, domain)
        if target is AGGREGATE:
            return self._aggregated(node, domain)
        if target in ("add", "sub") and (parts := _terms(node)):
            return self._sum(node, domain, parts)
        if target is linear:
            return self._sum(node, domain, [(node, 1.0)])
        line = _affine(node)
        if line is not None:
            a, alpha, beta = line
            made = Instruction("affine", -1, self._of(a, domain), domain)
            return self._add(node, replace(made, alpha=alpha, beta=beta))
        if target == "mul":
            _refuse_widths(node)
            left, right = (self._of(input_node(node, at), domain) for at in (0, 1))
            return self._add(node, Instruction("multiply", -1, left, domain, right))
        if isinstance(target, str) and target in FUNCTIONS and len(node.args) == 1:
            source = self._of(input_node(node, 0), domain)
            return self._add(node, Instruction(target, -1, source, domain))
        name = target if isinstance(target, str) else getattr(target, "__name__", "a function")
        raise NotScannedError(f"there is no loop for `{name}`")

    def _add(self, node: Node, instruction: Instruction) -> int:
        """Write an instruction that computes a slot of its own."""
        out = self.builder.slot(self.rows[instruction.domain], _width(node))
        return self.builder.add(replace(instruction, out=out))

    def _reshaped(self, node: Node, domain: int) -> int:
        """A value with its numbers in the same order, row by row."""
        read = input_node(node, 0)
        if tuple(read.meta["like"].shape[:2]) != tuple(node.meta["like"].shape[:2]):
            raise NotScannedError("rows are taken apart")
        return self._of(read, domain)

    def _gathered(self, node: Node, domain: int) -> int:
        read, axis, rows = input_node(node, 0), node.args[1], input_node(node, 2)
        index = self.lowering.constants.get(str(rows.target))
        if axis != 1 or not isinstance(index, Tensor) or read not in self.slots:
            raise NotScannedError("what is gathered is computed")
        table, source = index.numpy(), self.slots[read]
        if len(table) != self.rows[domain]:
            raise NotScannedError("a gather has other rows than groundings")
        if bool((np.diff(table) == 1).all()):
            return self.builder.stretch(source, int(table[0]), len(table))
        number = self.builder.table(table)
        return self._add(node, Instruction("gather", -1, source, domain, index=number))

    def _aggregated(self, node: Node, domain: int) -> int:
        data, name, parts = input_node(node, 0), node.args[1], input_node(node, 2)
        kernel = DEFINITIONS[str(name)].kernel
        if kernel not in ("sum", "mean"):
            raise NotScannedError(f"there is no loop for `{name}`")
        segments = self.lowering.constants[str(parts.target)]
        source, heads = self._of(data, domain), self.rows[self.heads]
        total = self.builder.slot(heads, _width(node))
        table = self.builder.table(segments.ids.numpy())
        self.builder.add(Instruction("scatter", total, source, domain, index=table))
        if kernel == "sum":
            return total
        share = segments.sizes.to(node.meta["like"].dtype).reciprocal().reshape(1, -1, 1)
        factor = self.input(self.lowering.lifted(share), heads, 1)
        return self._add(node, Instruction("multiply", -1, total, self.heads, factor))

    def _sum(self, node: Node, domain: int, parts: list[tuple[Node, float]]) -> int:
        """Terms in one slot: those outside are its numbers before the loop."""
        if node.target is not linear:
            _refuse_widths(node)
        inner = [(term, sign) for term, sign in parts if term in self.inside]
        products = [n for n, sign in inner if n.target is linear and sign == 1 and self._once(n)]
        others = [(n, sign) for n, sign in inner if n not in products]
        read = [self._signed(n, sign, domain) for n, sign in others]
        sides = [(self._of(input_node(n, 0), domain), self._matrix(n)) for n in products]
        outside = [(n, sign) for n, sign in parts if n not in self.inside]
        lifted = [n for n, sign in outside if sign == 1 and self._is_lifted(n, domain)]
        columns = [
            self.lowering.symbol(n) * sign if sign != 1 else self.lowering.symbol(n)
            for n, sign in outside
            if n not in lifted
        ]
        for n in (*products, *lifted):
            if len(n.args) > 2 and n.args[2] is not None:
                columns.append(self.lowering.symbol(input_node(n, 2)).reshape(1, 1, -1))
        out = self._started(columns, node, domain, bool(lifted))
        for n in lifted:
            source = self.sources.setdefault(input_node(n, 0), len(self.sources))
            self.builder.lifted.append((out, source, self._matrix(n)))
        for source in read:
            self.builder.add(Instruction("add", out, source, domain))
        for source, matrix in sides:
            self.builder.add(Instruction("linear", out, source, domain, weight=matrix))
        return out

    def _is_lifted(self, node: Node, domain: int) -> bool:
        """Whether a node outside is a product of as many rows, which nothing else reads."""
        if node.target is not linear or len(node.users) > 1:
            return False
        source, matrix = (input_node(node, at).meta["like"] for at in (0, 1))
        return (
            source.ndim == 3
            and matrix.ndim == 2
            and tuple(source.shape[:2]) == (self.batch, self.rows[domain])
        )

    def _once(self, product: Node) -> bool:
        return product not in self.slots and len(product.users) <= 1

    def _signed(self, node: Node, sign: float, domain: int) -> int:
        found = self._of(node, domain)
        if sign == 1:
            return found
        return self._add(node, Instruction("affine", -1, found, domain, alpha=sign))

    def _started(self, columns: list[Tensor], node: Node, domain: int, filled: bool) -> int:
        """A slot that terms are added to, with the sum of those that are known; `filled` if there
        are products to add to it before the loop."""
        shape, rows, width = node.meta["like"].shape, self.rows[domain], _width(node)
        if filled and not columns:
            columns = [
                self.lowering.lifted(torch.zeros(1, 1, width, dtype=node.meta["like"].dtype))
            ]
        if not columns:
            return self.builder.slot(rows, width)
        wide = [c.reshape(*c.shape, *[1] * (len(shape) - c.ndim)) for c in columns]
        total = reduce(add, wide)
        if tuple(total.shape[2:]) != tuple(shape[2:]):
            total = total.expand(*total.shape[:2], *shape[2:])
        return self.input(total, rows, width)

    def _matrix(self, node: Node) -> int:
        matrix = input_node(node, 1)
        if matrix in self.inside:
            raise NotScannedError("a matrix is computed by the recursion")
        if matrix not in self.matrices:
            self.matrices[matrix] = self.builder.matrix(*matrix.meta["like"].shape)
        return self.matrices[matrix]


def _width(node: Node) -> int:
    return prod(node.meta["like"].shape[2:])


def _refuse_widths(node: Node) -> None:
    """Operands are as wide as the result, or one number in each row."""
    for read in node.all_input_nodes:
        if _width(read) not in (1, _width(node)) or _width(node) < _width(read):
            raise NotScannedError("values of different shapes are combined")


def _affine(node: Node) -> tuple[Node, float, float] | None:
    """alpha · a + beta, where a node is that of another and of numbers."""
    read = [arg for arg in node.args if isinstance(arg, Node)]
    if len(read) != 1 or node.kwargs:
        return None
    match node.target, node.args:
        case "neg", _:
            return read[0], -1.0, 0.0
        case (("add" | "__radd__"), (Node(), int() | float() as number)):
            return read[0], 1.0, float(number)
        case "sub", (Node(), int() | float() as number):
            return read[0], 1.0, -float(number)
        case (("rsub" | "__rsub__"), (Node(), int() | float() as number)):
            return read[0], -1.0, float(number)
        case (("mul" | "__rmul__"), (Node(), int() | float() as number)):
            return read[0], float(number), 0.0
    return None


def _terms(node: Node) -> list[tuple[Node, float]] | None:
    """The terms of a sum with their signs; sums that nobody else reads are taken apart. None for
    what is no sum of values."""
    left, right = node.args[0], node.args[1]
    if node.kwargs or not isinstance(left, Node) or not isinstance(right, Node):
        return None
    sign = -1.0 if node.target == "sub" else 1.0
    return [*_inner_terms(left, node, 1.0), *_inner_terms(right, node, sign)]


def _inner_terms(node: Node, total: Node, sign: float) -> list[tuple[Node, float]]:
    like, own = total.meta["like"], node.meta["like"]
    if node.target in ("add", "sub") and len(node.users) == 1 and own.shape[2:] == like.shape[2:]:
        found = _terms(node)
        if found is not None:
            return [(n, s * sign) for n, s in found]
    return [(node, sign)]
