"""Sums of messages along edges: y_s = Σ_e f(rows of the ends of e), nothing materialised.

A message f is code: an expression, number by number, of rows that an edge reads, whose nodes are
those of scores. Edge e has its segment s, other ends such as the row j of a source, and may have a
row of its own. Several sums over the same edges are one `Messages`, whose text says what each
reads and computes, in postfix:

>>> gated = Messages.of("0w 1w 1w; 0 1 add sigmoid; 0 1 add sigmoid 2 mul")
>>> gated.leaves[1], gated.outputs[1].function
(EdgeInput(end='1', wide=True), 'mul')

Leaf 0 is the row of the segment here, leaf 1 and 2 are rows of the first other end. `e` is the row
of the edge itself and `*` one row for all edges; `w` is as wide as the sum, `s` a single number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import FIELDS, SplitCSR, in_pieces
from edgewise.kernels.edges.reference import wide
from edgewise.scores.nodes import Call, Leaf, Node, Number

EDGE, ALL = "e", "*"
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.true_divide,
    "neg": torch.neg, "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "exp": torch.exp, "square": torch.square, "reciprocal": torch.reciprocal, "abs": torch.abs,
    "sqrt": torch.sqrt, "silu": torch.nn.functional.silu,
    "leaky_relu": torch.nn.functional.leaky_relu,
}  # fmt: skip
BINARY = {"add", "sub", "mul", "div", "leaky_relu"}


@dataclass(frozen=True)
class EdgeInput:
    """The row that an edge reads at one of its ends; `wide` or a single number."""

    end: str
    wide: bool


@dataclass(frozen=True)
class Messages:
    """One expression for each sum."""

    leaves: tuple[EdgeInput, ...]
    outputs: tuple[Node, ...]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> Messages:
        """Back from `text`."""
        head, *parts = text.split(";")
        leaves = tuple(EdgeInput(word[:-1], word[-1] == "w") for word in head.split())
        return Messages(leaves, tuple(_expression(part.split()) for part in parts))

    @cached_property
    def text(self) -> str:
        head = " ".join(leaf.end + ("w" if leaf.wide else "s") for leaf in self.leaves)
        return "; ".join([head, *(" ".join(_postfix(output)) for output in self.outputs)])

    @property
    def calls(self) -> int:
        """The functions of one number, and one addition for each sum."""
        return len(inner_first(self.outputs)) - len(self.leaves) + len(self.outputs)

    def __call__(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Of rows, one for each edge."""
        return [_value(output, leaves) for output in self.outputs]


def inner_first(outputs: Sequence[Node]) -> list[Node]:
    """All different parts, operands before what reads them."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in found:
            for operand in node.operands if isinstance(node, Call) else ():
                visit(operand)
            found[node] = None

    for output in outputs:
        visit(output)
    return list(found)


def _expression(words: Sequence[str]) -> Node:
    stack: list[Node] = []
    for word in words:
        if word.isdecimal():
            stack.append(Leaf(word))
        elif word.startswith("#"):
            stack.append(Number(float(word[1:])))
        else:
            count = 2 if word in BINARY else 1
            stack[-count:] = [Call(word, tuple(stack[-count:]))]
    (found,) = stack
    return found


def _postfix(node: Node) -> list[str]:
    match node:
        case Leaf(name):
            return [name]
        case Number(value):
            return [f"#{value!r}"]
        case Call(function, operands):
            return [word for operand in operands for word in _postfix(operand)] + [function]
    raise AssertionError(node)


def _value(node: Node, leaves: Sequence[Tensor]) -> Any:
    match node:
        case Leaf(name):
            return leaves[int(name)]
        case Number(value):
            return value
        case Call(function, operands):
            return FUNCTIONS[function](*(_value(operand, leaves) for operand in operands))
    raise AssertionError(node)


@dataclass(frozen=True, eq=False)
class Along:
    """Edges in the order of one of their ends: `rows.perm` are their numbers, `ends[u]` the rows
    that they read at end u."""

    rows: SplitCSR
    ends: tuple[Tensor, ...]

    @cached_property
    def integers(self) -> tuple[Tensor, ...]:
        """As loops take it: pieces, the row that each belongs to and that of its result, edges and
        rows of all ends."""
        return *self.rows.places, self.rows.perm, *self.ends


@dataclass(frozen=True, eq=False)
class MessageIndex:
    """The same edges by segment, and by each other end; the first is what is summed."""

    ways: tuple[Along, ...]

    @property
    def edges(self) -> int:
        return self.ways[0].rows.edges

    @property
    def segments(self) -> int:
        return self.ways[0].rows.segments

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All of it, as operators take it."""
        fields = SplitCSR.__dataclass_fields__
        return [
            t for way in self.ways for t in (*(getattr(way.rows, f) for f in fields), *way.ends)
        ]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> MessageIndex:
        """Back from `tensors`."""
        count = next(n for n in range(1, len(tensors)) if n * (FIELDS + n) == len(tensors))
        step = FIELDS + count
        parts = [tensors[step * way : step * (way + 1)] for way in range(count)]
        return MessageIndex(
            tuple(Along(SplitCSR(*part[:FIELDS]), tuple(part[FIELDS:])) for part in parts)
        )


def message_index(ends: Sequence[Tensor], sizes: Sequence[int]) -> MessageIndex:
    """Edge e has the ends ends[u][e], each of this many rows; the first is its segment.

    >>> ends = [torch.tensor(x) for x in ([0, 0, 1], [2, 0, 2])]
    >>> message_index(ends, (2, 3)).ways[1].rows.ptr.tolist()
    [0, 1, 1, 3]
    """
    ways = []
    for first, size in zip(ends, sizes, strict=True):
        order = first.argsort(stable=True)
        ptr = torch.nn.functional.pad(torch.bincount(first, minlength=size).cumsum(0), (1, 0))
        rows = in_pieces(*(x.int() for x in (ptr, order, order)))
        ways.append(Along(rows, tuple(end[order].int() for end in ends)))
    return MessageIndex(tuple(ways))


def gathered(messages: Messages, leaves: Sequence[Tensor], index: MessageIndex) -> list[Tensor]:
    """The rows that edges read, in the order of the segments."""
    way = index.ways[0]
    found = []
    for leaf, x in zip(messages.leaves, leaves, strict=True):
        if leaf.end == ALL:
            found.append(x)
        else:
            found.append(x[(way.rows.perm if leaf.end == EDGE else way.ends[int(leaf.end)]).long()])
    return found


def reference(
    messages: Messages, leaves: Sequence[Tensor], index: MessageIndex
) -> tuple[Tensor, ...]:
    """The sums by gathers and additions of torch, all edges at once; gradients of any order are
    autograd's."""
    kind, width = wide(leaves[0].dtype), max(leaf.shape[-1] for leaf in leaves)
    ids = index.ways[0].ends[0].long()
    each = messages(gathered(messages, [leaf.to(kind) for leaf in leaves], index))
    none = leaves[0].new_zeros(index.segments, width, dtype=kind)
    return tuple(
        none.index_add(0, ids, x.expand(len(ids), width)).to(leaves[0].dtype) for x in each
    )


def gradients(
    messages: Messages,
    leaves: Sequence[Tensor],
    grads: Sequence[Tensor],
    wanted: Sequence[int],
    index: MessageIndex,
) -> dict[int, Tensor]:
    """Those of the wanted leaves, by autograd."""
    with torch.enable_grad():
        each = [leaf.detach().requires_grad_(at in wanted) for at, leaf in enumerate(leaves)]
        sums = reference(messages, each, index)
        some = [each[at] for at in wanted]
        found = torch.autograd.grad(sums, some, grads, materialize_grads=True)
    return dict(zip(wanted, found, strict=True))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "segment_messages": reference,
    "message_gradients": gradients,
}
