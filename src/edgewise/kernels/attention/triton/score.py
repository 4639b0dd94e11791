"""Scores as Triton functions: source is written from the tree, compiled once for each score.

Triton keeps what it compiled on disk by the content of the source, so another process with the
same score compiles nothing. `Sizes` has how far apart neighbouring places are, which every graph
of strides changes, then three numbers per table: those are packed one after another, and table t
has `rows` rows of `length` numbers from `offset` on.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import hashlib
import linecache
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise.scores.nodes import (
    REAL,
    Call,
    Entry,
    I,
    J,
    Leaf,
    Node,
    Number,
    S,
    by_distance,
    entries,
    walk,
)
from edgewise.scores.primitives import PRIMITIVES, derivative, kind, operand_kinds

PARAMETERS = "s, i, j, h, Tables, Sizes"


@dataclass(frozen=True, eq=False)
class Functions:
    """`value` of (s, i, j, h, Tables, Sizes), its `slope` by s, and `spread`, which adds the
    gradients of tables up. Triton's, or None without a score."""

    value: Any
    slope: Any
    spread: Any


def functions(score: Node) -> Functions:
    """The compiled functions of a score: the same ones however far apart places are."""
    return _compiled(spaced(score)[0])


@lru_cache(maxsize=256)
def spaced(score: Node) -> tuple[Node, int]:
    """The score with i for each i·c and j for each j·c, and c: 1 where that is not one number."""
    found: set[int] = set()
    inner = _divided(score, found)
    return (inner, found.pop()) if len(found) == 1 else (score, 1)


def _divided(node: Node, found: set[int]) -> Node:
    match node:
        case Call("mul", (Leaf("i" | "j") as place, Number(int(by)))) if abs(by) < 1 << 31:
            found.add(by)
            return place
        case Leaf("i" | "j"):
            found.add(1)
        case Call(function, operands):
            return Call(function, tuple([_divided(x, found) for x in operands]))
        case Entry(table, index):
            return Entry(table, _divided(index, found))
    return node


@lru_cache(maxsize=256)
def _compiled(score: Node) -> Functions:
    if score == S:
        return Functions(None, None, None)
    import triton
    import triton.language as tl

    text = source(score)
    file = f"<edgewise score {digest(score)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    from edgewise.kernels.attention.triton.parts_kernels import added, added_by_distance

    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "edgewise.compiled_scores"}
    names |= {"added": added, "added_by_distance": added_by_distance}
    exec(compile(text, file, "exec"), names)  # written above, from nodes alone
    return Functions(*(names[f"{part}_{digest(score)}"] for part in ("value", "slope", "spread")))


def digest(score: Node) -> str:
    return hashlib.sha256(repr(score).encode()).hexdigest()[:12]


def source(score: Node) -> str:
    """The text of the three functions."""
    name, text = digest(score), []
    apart = [f"    {x.name} = {x.name} * tl.load(Sizes)" for x in (I, J) if x in walk(score)]
    for part, node in (("value", score), ("slope", derivative(score, S))):
        lines = _Lines()
        result = lines.real(node)
        text += ["@triton.jit", f"def {part}_{name}({PARAMETERS}):"]
        text += [*apart, *lines.text, f"    return s * 0.0 + {result}", "", ""]
    lines = _Lines()
    for entry in entries(score):
        place, result = lines.place(entry), lines.real(derivative(score, entry))
        # Integers, so that the sum is the same in whatever order they come.
        lines.text.append(f"    part = (ds * ({result}) * unit + s * 0.0).to(tl.int64)")
        way = "added_by_distance" if _along_diagonals(entry.index) else "added"
        lines.text.append(f"    {way}(Grads, {place} + i * 0 + j * 0, part, inside)")
    text += ["@triton.jit", f"def spread_{name}({PARAMETERS}, ds, inside, unit, Grads):"]
    return "\n".join([*text, *apart, *(lines.text or ["    pass"]), ""])


def _along_diagonals(index: Node) -> bool:
    return by_distance(index) and S not in walk(index)


class _Lines:
    """Assignments, one for each different part of a score."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.names: dict[Node, str] = {}
        self.places: dict[Entry, str] = {}

    def real(self, node: Node) -> str:
        if isinstance(node, Number):
            return _number(float(node.value))
        name = self.name(node)
        return name if kind(node) == REAL else f"{name}.to(tl.float32)"

    def name(self, node: Node) -> str:
        if node not in self.names:
            value = self._value(node)
            if not isinstance(node, Call | Entry):
                return value
            self.names[node] = f"v{len(self.names)}"
            self.text.append(f"    {self.names[node]} = {value}")
        return self.names[node]

    def _value(self, node: Node) -> str:
        match node:
            case Leaf(name):
                return name
            case Number(value):
                return _number(value)
            case Entry():
                return f"tl.load(Tables + {self.place(node)})"
            case Call(function, operands):
                texts = [
                    self.real(x) if want == REAL else self.name(x)
                    for x, want in zip(operands, operand_kinds(node), strict=True)
                ]
                return PRIMITIVES[function].triton.format(*texts)
        raise AssertionError(node)

    def place(self, entry: Entry) -> str:
        """Where an entry stands among all tables."""
        if entry not in self.places:
            index, at = self._index(entry.index), f"at{len(self.places)}"
            first, rows, length = (f"tl.load(Sizes + {3 * entry.table + x})" for x in (1, 2, 3))
            self.text += [
                f"    {at} = tl.minimum({index}, {length} - 1)",
                f"    {at} = {first} + (h % {rows}) * {length} + {at}",
            ]
            self.places[entry] = at
        return self.places[entry]

    def _index(self, node: Node) -> str:
        if isinstance(node, Number):
            return str(max(int(node.value // 1), 0))
        name = self.name(node)
        return f"tl.maximum({name if kind(node) != REAL else f'tl.floor({name}).to(tl.int32)'}, 0)"


def _number(value: float) -> str:
    return repr(value) if abs(value) != float("inf") else f'float("{value}")'


@dataclass(frozen=True, eq=False)
class Packed:
    """Tables in one tensor, and where each is."""

    tables: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, tables: tuple[Tensor, ...], device: torch.device, score: Node = S) -> Packed:
        sizes = _sizes(tuple((len(t), t.shape[1]) for t in tables), spaced(score)[1], device)
        if not tables:
            return cls(_nothing(device), sizes)
        return cls(torch.cat([table.reshape(-1).float() for table in tables]), sizes)

    def split(self, grads: Tensor, tables: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Gradients of the packed tables, as those of each."""
        parts = grads.split([table.numel() for table in tables])
        return tuple(
            part.view(table.shape).to(table.dtype)
            for part, table in zip(parts, tables, strict=True)
        )


@lru_cache
def _nothing(device: torch.device) -> Tensor:
    return torch.zeros(1, device=device)


@lru_cache(maxsize=256)
def _sizes(shapes: tuple[tuple[int, int], ...], apart: int, device: torch.device) -> Tensor:
    found, at = [apart], 0
    for rows, length in shapes:
        found += [at, rows, length]
        at += rows * length
    return torch.tensor(found, dtype=torch.int32, device=device)


def unit_of(g: Tensor, v: Tensor, rows: int) -> Tensor:
    """How many units a gradient of 1 is, where sums are of integers.

    Σ|ds| ≤ rows · 2 max|dout| · max Σ|v|; slopes of up to 2^18 on top of that stay below 2^62.
    """
    most = 2 * g.float().abs().amax() * v.float().abs().sum(-1).amax() * max(rows, 1)
    return 2.0**44 / most.clamp(min=1e-30)
