"""A scan as lines of a tape: values and gradients of one workspace.

Gates of a recurrent network read the same rows: their products are one, in rows as wide as all of
them together. A function whose slope is one of its result is computed where its argument was, and a
product that is only added to something is added at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from edgewise.kernels.scan.program import ACCUMULATE, Instruction, Scan
from edgewise.kernels.tape.instructions import OPS, SLOPES, WIDTH, Operand, line
from edgewise.kernels.tape.writer import Code

ALIGNED = 16  # numbers at multiples of which slots begin
_CODE: WeakKeyDictionary[Scan, ScanCode] = WeakKeyDictionary()


@dataclass(frozen=True)
class Place:
    """`rows` of `width` numbers in a workspace, `step` apart."""

    start: int
    rows: int
    width: int
    step: int

    def view(self, work: Tensor) -> Tensor:
        size, step = (self.rows, self.width), (self.step, 1)
        return work.as_strided(size, step, work.storage_offset() + self.start)


@dataclass(frozen=True)
class LoopProducts:
    """Rows of `source` times matrices, added to `out`: `matrices` are the number of each and the
    column where its results begin. They lie from `turned` on as (in, out), from `plain` on as
    (out, in)."""

    out: Place
    source: Place
    matrices: tuple[tuple[int, int], ...]
    turned: int
    plain: int


@dataclass(frozen=True)
class Lifted:
    """Products of a source by matrices side by side; `inputs` are the columns that they are added
    to, if these are one row each and nothing else is there."""

    out: Place
    source: int
    matrices: tuple[tuple[int, int], ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ScanCode:
    """Gradients lie `size` numbers after values; `zeros` are the rows that sums begin with."""

    forward: Code
    backward: Code
    size: int
    inputs: tuple[Place, ...]
    results: tuple[Place, ...]
    products: tuple[LoopProducts, ...]
    lifted: tuple[Lifted, ...]
    zeros: tuple[Place, ...]
    constants: tuple[tuple[int, float], ...]


def scan_code(scan: Scan) -> ScanCode:
    found = _CODE.get(scan)
    if found is None:
        found = _CODE[scan] = _CodeWriter(scan).write()
    return found


@dataclass(eq=False)
class _CodeWriter:
    scan: Scan
    size: int = 0
    forward: list[list[list[int]]] = field(default_factory=list)  # lines of each instruction
    backward: list[list[list[int]]] = field(default_factory=list)
    constants: dict[float, int] = field(default_factory=dict)

    def write(self) -> ScanCode:
        scan = self.scan
        self.instructions = list(scan.instructions)
        self.removed = self._add_products()
        self.here = self._in_place()
        groups = self._groups()
        self._place(groups)
        self.forward = [[] for _ in scan.instructions]
        self.backward = [[] for _ in scan.instructions]
        for at, x in enumerate(self.instructions):
            if at not in self.removed and x.op != "linear":
                self._lines(at, x)
        self.products = [self._product(group) for group in groups]
        for group in groups:
            self._join_functions(group)
        index = np.concatenate([*scan.tables, np.zeros(0, np.int64)])
        backward = self._code(self.backward, index, reverse=True)
        # lines of gradients were written with places of values: they lie after all of them
        return ScanCode(
            self._code(self.forward, index),
            backward,
            self.size,
            tuple(self._at(slot) for slot in scan.inputs),
            tuple(self._at(slot) for slot in scan.results),
            tuple(self.products),
            tuple(self._lifted(groups)),
            tuple(self._zeros()),
            tuple((start, number) for number, start in self.constants.items()),
        )

    # what is computed where

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The instructions that read the rows of each root; -1 where they are results."""
        found = defaultdict(list)
        for at, x in enumerate(self.instructions):
            for slot in {x.a, x.b} - {-1}:
                found[self.scan.slots[slot].root].append(at)
        for slot in self.scan.results:
            found[self.scan.slots[slot].root].append(-1)
        return found

    def _is_root(self, slot: int) -> bool:
        """Whether a slot is all rows of its root."""
        own = self.scan.slots[slot]
        return own.rows == self.scan.slots[own.root].rows

    def _add_products(self) -> set[int]:
        """Let what multiplies add to where its product is added, if nothing else reads it."""
        scan, removed = self.scan, set[int]()
        written = {x.out: at for at, x in enumerate(scan.instructions) if x.op == "multiply"}
        for at, x in enumerate(scan.instructions):
            by = written.get(x.a) if x.op == "add" else None
            if by is None or self.readers[scan.slots[x.a].root] != [at]:
                continue
            product = scan.instructions[by]
            widths = {scan.slots[slot].width for slot in (x.out, x.a, product.a, product.b)}
            if len(widths) == 1 and product.domain == x.domain and self._is_root(x.a):
                self.instructions[at] = Instruction(
                    "multiply_add", x.out, product.a, x.domain, product.b
                )
                removed.add(by)
        return removed

    def _in_place(self) -> dict[int, int]:
        """The root whose numbers a root takes: a function of it, which alone reads it."""
        found, slots = dict[int, int](), self.scan.slots
        results = {slots[x.out].root for x in self.instructions if SLOPES.get(x.op) == "result"}
        for at, x in enumerate(self.instructions):
            if SLOPES.get(x.op) != "result" or not (self._is_root(x.a) and self._is_root(x.out)):
                continue
            old, new = slots[x.a].root, slots[x.out].root
            if self.readers[old] == [at] and old != new and old not in results:
                found[new] = old
        return found

    def _root(self, slot: int) -> int:
        found = self.scan.slots[slot].root
        while found in self.here:
            found = self.here[found]
        return found

    def _groups(self) -> list[list[int]]:
        """Products of the same rows, by matrices that are side by side; functions of their results
        that are the same follow one another."""
        found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        alone, taken = [], set[int]()
        after = {self._root(x.a): x.op for x in self.instructions if x.op in SLOPES}
        for at, x in enumerate(self.instructions):
            if x.op != "linear":
                continue
            root = self._root(x.out)
            if root in taken or not self._is_root(x.out):
                alone.append([at])
                continue
            taken.add(root)
            source = self.scan.slots[x.a]
            found[source.root, source.row, x.domain].append(at)
        together = []
        for group in found.values():
            order = sorted(
                group, key=lambda at: after.get(self._root(self.instructions[at].out), "")
            )
            together.append(order)
        return [*together, *alone]

    def _place(self, groups: list[list[int]]) -> None:
        self.starts: dict[int, tuple[int, int]] = {}  # start and step of each root
        slots = self.scan.slots
        for group in groups:
            roots = [self._root(self.instructions[at].out) for at in group]
            if roots[0] in self.starts:
                continue
            total = sum(slots[root].width for root in roots)
            start = self._fresh(total * slots[roots[0]].rows)
            for root in roots:
                self.starts[root] = start, total
                start += slots[root].width
        unread = {slots[self.scan.instructions[at].out].root for at in self.removed}
        for root in sorted({slot.root for slot in slots} - unread):
            if root not in self.here and root not in self.starts:
                slot = slots[root]
                self.starts[root] = self._fresh(slot.width * slot.rows), slot.width

    def _fresh(self, count: int) -> int:
        start = -(-self.size // ALIGNED) * ALIGNED
        self.size = start + count
        return start

    def _at(self, slot: int) -> Place:
        own = self.scan.slots[slot]
        start, step = self.starts[self._root(slot)]
        return Place(start + own.row * step, own.rows, own.width, step)

    def _zeros(self) -> list[Place]:
        filled = {self._root(slot) for slot in self.scan.inputs if self._is_root(slot)}
        sums = {
            self._root(x.out)
            for at, x in enumerate(self.instructions)
            if at not in self.removed and x.op in {*ACCUMULATE, "multiply_add"}
        }
        return [self._at(root) for root in sorted(sums - filled)]

    # lines

    def _operand(self, slot: int, width: int) -> Operand:
        """A number in each row stands for as many as there are."""
        place = self._at(slot)
        return place.start, place.step, 1 if place.width == width else 0

    def _number(self, value: float) -> Operand:
        if value not in self.constants:
            self.constants[value] = self._fresh(1)
        return self.constants[value], 0, 0

    def _lines(self, at: int, x: Instruction) -> None:
        """The lines of an instruction; operands of gradients are marked by `_grad`."""
        out, width = self._at(x.out), self.scan.slots[x.out].width
        y, a = self._operand(x.out, width), self._operand(x.a, width)
        b = self._operand(x.b, width) if x.b >= 0 else a
        dy, da, db = _grad(y), _grad(a), _grad(b)
        start = sum(map(len, self.scan.tables[: x.index])) if x.index >= 0 else 0

        def made(name: str, *operands: Operand, index: int = 0) -> list[int]:
            return line(name, (out.rows, width), *operands, index=index)

        forward: list[list[int]]
        match x.op:
            case "gather":
                forward = [made("gather", y, a, index=start)]
                backward = [made("scatter_add", da, dy, index=start)]
            case "scatter":
                forward = [made("scatter_add", y, a, index=start)]
                backward = [made("gather_add", da, dy, index=start)]
            case "add":
                forward = [made("add", y, y, a)]
                one = self._number(1.0)
                backward = [made("dot_add", da, dy, one) if a[2] == 0 else made("add", da, da, dy)]
            case "multiply" | "multiply_add":
                left, right = (b, a) if a[2] == 0 else (a, b)
                forward = [made("mul" if x.op == "multiply" else x.op, y, left, right)]
                backward = [
                    made("dot_add" if mine[2] == 0 else "multiply_add", slope, dy, other)
                    for mine, slope, other in ((a, da, b), (b, db, a))
                ]
            case "affine":
                alpha = self._number(x.alpha)
                forward = [made("mul", y, a, alpha)]
                forward += [made("add", y, y, self._number(x.beta))] if x.beta else []
                backward = [made("multiply_add", da, dy, alpha)]
            case "square":
                forward = [made("mul", y, a, a)]
                backward = [made("multiply_add", da, dy, a)] * 2
            case _:
                forward = [made(x.op, y, a)]
                name = "slope" if y == a else "slope_add"
                of = y if SLOPES[x.op] == "result" else a
                backward = [made(name, da, dy, of, index=OPS[x.op])]
        self.forward[at], self.backward[at] = forward, backward

    def _product(self, group: list[int]) -> LoopProducts:
        instructions = [self.instructions[at] for at in group]
        first, last = (self._at(instructions[at].out) for at in (0, -1))
        source, width = self._at(instructions[0].a), last.start + last.width - first.start
        out = Place(first.start, first.rows, width, first.step)
        turned, plain = self._fresh(source.width * width), self._fresh(source.width * width)
        y, a = (out.start, out.step, 1), (source.start, source.step, 1)
        inner = ((source.width, 0, 0), (width, 0, 0))
        at = min(group)
        size = (out.rows, width), (source.rows, source.width)
        self.forward[at] = [line("product_add", size[0], y, a, (turned, width, 1), inner[0])]
        b = (plain, source.width, 1)
        self.backward[at] = [line("product_add", size[1], _grad(a), _grad(y), b, inner[1])]
        columns = [self._at(x.out).start - first.start for x in instructions]
        matrices = tuple(zip([x.weight for x in instructions], columns, strict=True))
        return LoopProducts(out, source, matrices, turned, plain)

    def _lifted(self, groups: list[list[int]]) -> list[Lifted]:
        """LoopProducts before the loop; those of one source are one where their results are side by
        side."""
        order = {self._root(self.instructions[at].out): n for n, at in enumerate(chain(*groups))}
        terms = sorted(self.scan.lifted, key=lambda term: order.get(self._root(term[0]), -1))
        found: list[Lifted] = []
        for slot, source, matrix in terms:
            place, at = self._at(slot), self.scan.inputs.index(slot)
            last = found[-1] if found else None
            if (
                last is not None
                and last.source == source
                and last.out.step == place.step
                and last.out.start + last.out.width == place.start
                and last.out.width < place.step
            ):
                out = Place(last.out.start, place.rows, last.out.width + place.width, place.step)
                pairs = (*last.matrices, (matrix, last.out.width))
                found[-1] = Lifted(out, source, pairs, (*last.inputs, at))
            else:
                found.append(Lifted(place, source, ((matrix, 0),), (at,)))
        return found

    def _join_functions(self, group: list[int]) -> None:
        """Functions in place of results that are side by side as one, at the last of them."""
        after = {
            self._root(x.a): at
            for at, x in enumerate(self.instructions)
            if x.op in SLOPES and self._root(x.a) == self._root(x.out)
        }
        runs: list[list[int]] = []
        for at in group:
            by = after.get(self._root(self.instructions[at].out))
            if by is None:
                continue
            same = runs and self.instructions[runs[-1][-1]].op == self.instructions[by].op
            same = same and self.instructions[runs[-1][-1]].domain == self.instructions[by].domain
            runs = [*runs[:-1], [*runs[-1], by]] if same else [*runs, [by]]
        for run in runs:
            last = max(run)
            read = [
                r
                for by in run
                for r in self.readers[self.scan.slots[self.instructions[by].out].root]
            ]
            if len(run) == 1 or any(0 <= r < last for r in read):
                continue
            width = sum(self.scan.slots[self.instructions[by].out].width for by in run)
            for lines in (self.forward, self.backward):
                first = list(lines[run[0]][0])
                first[2] = width
                for by in run:
                    lines[by] = []
                lines[last] = [first]

    def _code(self, lines: list[list[list[int]]], index: np.ndarray, reverse: bool = False) -> Code:
        counts = np.array([len(own) for own in lines])
        starts = np.cumsum(counts) - counts
        scan = self.scan
        which, first, last = scan.which, scan.first, scan.last
        if reverse:
            which, first, last = which[::-1], first[::-1], last[::-1]
        each = counts[which]
        number = np.repeat(starts[which], each)
        offset = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        steps = np.stack([number + offset, np.repeat(first, each), np.repeat(last, each)], 1)
        flat = np.array([own for part in lines for own in part], np.int64).reshape(-1, WIDTH)
        starts_of = flat[:, [3, 6, 9]]
        flat[:, [3, 6, 9]] = np.where(starts_of < 0, self.size - 1 - starts_of, starts_of)
        return Code(flat, np.ascontiguousarray(steps, np.int64), index.astype(np.int64))


def _grad(operand: Operand) -> Operand:
    """The gradient of an operand: below 0 until the size of the workspace is known."""
    return -1 - operand[0], operand[1], operand[2]
