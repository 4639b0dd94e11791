"""Machine code of messages: LLVM's, written from their expressions, one loop for each direction.

Numba's loops would be compiled again for each expression, in a second; here only the numbers of a
row are written out, which takes some milliseconds. A function is called as

    f(pointers, strides, width, first, last)

for pieces first ≤ p < last of `along`: pointers are ptr, owner, place and number of the edges,
the rows of each end, then the leaves, the gradients of sums, and the results; strides are how far
the rows of leaves, gradients of sums and results are apart.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped,no-untyped-call"

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from llvmlite import ir
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock

from edgewise.kernels.edges.messages import (
    ALL,
    EDGE,
    Messages,
    inner_first,
)
from edgewise.kernels.simd_lanes import LANES, Lanes
from edgewise.kernels.simd_rows import AHEAD, LINE
from edgewise.scores.nodes import Call, Leaf, Node, Number

WORD, LONG, BYTE = ir.IntType(32), ir.IntType(64), ir.IntType(8)
FIXED = 4  # pointers before those of ends
BLOCK = 64  # numbers of all sums that stay in registers
KNOWN = 128  # rows as wide have code of their own
SMALL = 0.1  # below it tanh is its series, whose next term is below the precision of float32


@dataclass(frozen=True)
class Loop:
    """Along one end: the sums themselves if `wanted` is empty, else the gradients of those leaves.

    Results stand in the order of `wanted`. Leaves of this end, and the one of all edges, are added
    up by piece; those of edges are written where the edge is. The code knows the width of rows, but
    of long ones, which are as wide as a batch has samples: theirs is 0. Lists hold integers of
    so many bits. Rows that are `far`, not all in a cache, are asked for before they are read.
    """

    messages: Messages
    along: int
    ends: int
    wanted: tuple[int, ...]
    dtype: torch.dtype
    width: int
    bits: int = 32
    far: bool = True

    def is_summed(self, leaf: int) -> bool:
        return self.messages.leaves[leaf].end != EDGE


class _Vectors(Lanes):
    """Some numbers at a time, without arrays of numba."""

    def __init__(self, builder, number, lanes):
        self.builder, self.number, self.lanes = builder, number, lanes
        self.vector = ir.VectorType(number, lanes)
        self.bytes = 4 if isinstance(number, ir.FloatType) else 8

    def call(self, name, x):
        """A function of the C library, lane by lane."""
        builder = self.builder
        kind = ir.FunctionType(self.number, [self.number])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        found = self.all(0.0)
        for lane in range(self.lanes):
            one = builder.call(function, [builder.extract_element(x, WORD(lane))])
            found = builder.insert_element(found, one, WORD(lane))
        return found

    def intrinsic(self, name, x):
        kind = ir.FunctionType(self.vector, [self.vector])
        name = f"llvm.{name}.v{self.lanes}f{8 * self.bytes}"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), [x]
        )


def _sigmoid(v, x):
    one = v.all(1.0)
    return v.builder.fdiv(one, v.builder.fadd(one, v.exp(v.builder.fneg(x))))


def _tanh(v, x):
    b, one = v.builder, v.all(1.0)
    if v.bytes == 8:
        return v.call("tanh", x)
    far = b.fsub(one, b.fdiv(v.all(2.0), b.fadd(v.exp(b.fadd(x, x)), one)))
    square = b.fmul(x, x)
    series = v.all(-17 / 315)
    for c in (2 / 15, -1 / 3, 1.0):
        series = v.plus(series, square, v.all(c))
    near = b.fcmp_ordered("<", v.intrinsic("fabs", x), v.all(SMALL))
    return b.select(near, b.fmul(series, x), far)


def _above(v, x):
    """Also what is not a number: it is passed on."""
    return v.builder.fcmp_unordered(">", x, v.all(0.0))


VALUES: dict[str, Callable[..., Any]] = {
    "add": lambda v, a, b: v.builder.fadd(a, b),
    "sub": lambda v, a, b: v.builder.fsub(a, b),
    "mul": lambda v, a, b: v.builder.fmul(a, b),
    "div": lambda v, a, b: v.builder.fdiv(a, b),
    "neg": lambda v, x: v.builder.fneg(x),
    "relu": lambda v, x: v.builder.select(_above(v, x), x, v.all(0.0)),
    "leaky_relu": lambda v, x, slope: v.builder.select(_above(v, x), x, v.builder.fmul(slope, x)),
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "exp": lambda v, x: v.exp(x),
    "square": lambda v, x: v.builder.fmul(x, x),
    "reciprocal": lambda v, x: v.builder.fdiv(v.all(1.0), x),
    "abs": lambda v, x: v.intrinsic("fabs", x),
    "sqrt": lambda v, x: v.intrinsic("sqrt", x),
    "silu": lambda v, x: v.builder.fmul(x, _sigmoid(v, x)),
}


def _silu_slope(v, y, x):
    b, s = v.builder, _sigmoid(v, x)
    return v.plus(y, b.fsub(v.all(1.0), s), s)


def _sign(v, x):
    b, zero = v.builder, v.all(0.0)
    negative = b.select(b.fcmp_ordered("<", x, zero), v.all(-1.0), zero)
    return b.select(b.fcmp_ordered(">", x, zero), v.all(1.0), negative)


# of the gradient g, the value y and the operands: the gradients of operands
SLOPES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "add": lambda v, g, y, a, b: (g, g),
    "sub": lambda v, g, y, a, b: (g, v.builder.fneg(g)),
    "mul": lambda v, g, y, a, b: (v.builder.fmul(g, b), v.builder.fmul(g, a)),
    "div": lambda v, g, y, a, b: (
        v.builder.fdiv(g, b),
        v.builder.fneg(v.builder.fdiv(v.builder.fmul(g, y), b)),
    ),
    "neg": lambda v, g, y, x: (v.builder.fneg(g),),
    "relu": lambda v, g, y, x: (v.builder.select(_above(v, x), g, v.all(0.0)),),
    "leaky_relu": lambda v, g, y, x, slope: (
        v.builder.select(_above(v, x), g, v.builder.fmul(slope, g)),
        v.all(0.0),
    ),
    "sigmoid": lambda v, g, y, x: (
        v.builder.fmul(v.builder.fmul(g, y), v.builder.fsub(v.all(1.0), y)),
    ),
    "tanh": lambda v, g, y, x: (
        v.builder.fmul(g, v.builder.fsub(v.all(1.0), v.builder.fmul(y, y))),
    ),
    "exp": lambda v, g, y, x: (v.builder.fmul(g, y),),
    "square": lambda v, g, y, x: (v.builder.fmul(g, v.builder.fadd(x, x)),),
    "reciprocal": lambda v, g, y, x: (v.builder.fneg(v.builder.fmul(g, v.builder.fmul(y, y))),),
    "abs": lambda v, g, y, x: (v.builder.fmul(g, _sign(v, x)),),
    "sqrt": lambda v, g, y, x: (v.builder.fdiv(g, v.builder.fadd(y, y)),),
    "silu": lambda v, g, y, x: (v.builder.fmul(g, _silu_slope(v, y, x)),),
}


class _Values:
    """The values of expressions at one place of a row, each computed once."""

    def __init__(self, vectors, leaves):
        self.vectors, self.leaves = vectors, leaves
        self.known: dict[Node, Any] = {}

    def of(self, node: Node):
        if node not in self.known:
            self.known[node] = self._computed(node)
        return self.known[node]

    def _computed(self, node: Node):
        match node:
            case Leaf(name):
                return self.leaves[int(name)]
            case Number(value):
                return self.vectors.all(value)
            case Call(function, operands):
                return VALUES[function](self.vectors, *map(self.of, operands))

    def gradients(self, messages: Messages, grads, wanted) -> list[Any]:
        """Those of the wanted leaves, from those of the sums."""
        v, found = self.vectors, dict[Node, Any]()
        matters: set[Node] = {Leaf(str(leaf)) for leaf in wanted}

        def add(node, more):
            found[node] = more if node not in found else v.builder.fadd(found[node], more)

        order = inner_first(messages.outputs)
        for node in order:
            if isinstance(node, Call) and not matters.isdisjoint(node.operands):
                matters.add(node)
        for output, grad in zip(messages.outputs, grads, strict=True):
            add(output, grad)
        for node in reversed(order):
            if not isinstance(node, Call) or node not in matters or node not in found:
                continue
            values = [self.of(operand) for operand in node.operands]
            parts = SLOPES[node.function](v, found[node], self.of(node), *values)
            for operand, part in zip(node.operands, parts, strict=True):
                if operand in matters:
                    add(operand, part)
        return [found.get(Leaf(str(leaf)), v.all(0.0)) for leaf in wanted]


class _LoopWriter:
    """The code of one loop.

    Sums stay in registers while the edges of a piece pass by, so a long row is added up in blocks
    of some registers, each a pass over the edges.
    """

    def __init__(self, loop: Loop, function) -> None:
        self.loop = loop
        number = ir.DoubleType() if loop.dtype == torch.float64 else ir.FloatType()
        self.builder = builder = ir.IRBuilder(function.append_basic_block("entry"))
        short = loop.dtype == torch.float64 or 0 < loop.width <= LANES
        self.lanes = LANES if short else 2 * LANES
        self.vectors = _Vectors(builder, number, self.lanes)
        pointers, strides, self.width, self.first, self.last = function.args
        leaves, sums = loop.messages.leaves, len(loop.messages.outputs)
        ends = range(FIXED, FIXED + loop.ends)
        word = ir.IntType(loop.bits)
        integers = [self._pointer(pointers, at, word) for at in range(FIXED + loop.ends)]
        self.ptr, self.owner, self.place, self.number = integers[:FIXED]
        self.ends = [integers[at] for at in ends]
        results = len(loop.wanted) or sums
        others = 0 if not loop.wanted else sums
        rows = [self._pointer(pointers, ends.stop + at, number)
                for at in range(len(leaves) + others + results)]  # fmt: skip
        apart = [builder.load(builder.gep(strides, [LONG(at)])) for at in range(len(rows))]
        data = list(zip(rows, apart, strict=True))
        self.leaves, self.grads = data[: len(leaves)], data[len(leaves) : len(leaves) + others]
        self.results = data[len(leaves) + others :]
        # whether a result is added up by piece, and whether it is as wide as a row
        self.summed = [loop.is_summed(leaf) for leaf in loop.wanted] or [True] * sums
        self.wide = [leaves[leaf].wide for leaf in loop.wanted] or [True] * sums
        self.block = max(BLOCK // self.lanes // results, 1) * self.lanes

    def _pointer(self, pointers, at, kind):
        builder = self.builder
        place = builder.load(builder.gep(pointers, [LONG(at)]))
        return builder.inttoptr(place, kind.as_pointer())

    def integer(self, array, place):
        found = self.builder.load(self.builder.gep(array, [place]))
        return found if self.loop.bits == 64 else self.builder.sext(found, LONG)

    def write(self) -> None:
        with cgutils.for_range_slice(self.builder, self.first, self.last, LONG(1)) as (p, _):
            self._piece(p)
        self.builder.ret_void()

    def _piece(self, p) -> None:
        builder, width = self.builder, self.loop.width
        own, place = self.integer(self.owner, p), self.integer(self.place, p)
        edges = [self.integer(self.ptr, at) for at in (p, builder.add(p, LONG(1)))]
        piece = own, place, edges, self.integer(self.ptr, self.last)
        if not width:
            full = builder.and_(self.width, LONG(-self.block))
            step = LONG(self.block)
            with cgutils.for_range_slice(builder, LONG(0), full, step) as (start, _):
                self._block(piece, start, self.block)
            over = builder.sub(self.width, full)
            with builder.if_then(builder.icmp_signed("!=", over, LONG(0))):
                self._block(piece, full, over)
        for start in range(0, width, self.block):
            self._block(piece, LONG(start), min(self.block, width - start))

    def _described(self):
        return zip(self.results, self.summed, self.wide, strict=True)

    def _block(self, piece, start, count) -> None:
        """Numbers `start` and after of the rows of a piece, `count` of them."""
        builder, v = self.builder, self.vectors
        own, place, (edge, stop), end = piece
        most = count if isinstance(count, int) else self.block
        chunks = [(at, self._mask(count, at)) for at in range(0, most, self.lanes)]
        totals = [
            [cgutils.alloca_once(builder, v.vector) for _ in (chunks if is_wide else [0])]
            for _, _, is_wide in self._described()
        ]
        for each, summed in zip(totals, self.summed, strict=True):
            for total in each if summed else ():
                builder.store(v.all(0.0), total)
        with cgutils.for_range_slice(builder, edge, stop, LONG(1)) as (e, _):
            self._edge(e, own, end, start, chunks, totals)
        for (row, summed, is_wide), each in zip(self._described(), totals, strict=True):
            if not summed:
                continue
            data, to = row[0], builder.mul(place, row[1])
            if not is_wide:
                self._add_number(v.total(builder.load(each[0])), data, to, start)
                continue
            for (at, left), total in zip(chunks, each, strict=True):
                into = builder.add(builder.add(to, start), LONG(at))
                v.store(builder.load(total), data, into, left)

    def _mask(self, count, at):
        """The lanes of what is left of a row from number `at` on; None for all."""
        lanes = [at + lane for lane in range(self.lanes)]
        if not isinstance(count, int):
            places = ir.Constant(ir.VectorType(LONG, self.lanes), lanes)
            return self.builder.icmp_signed("<", places, self.vectors.spread(count))
        if lanes[-1] < count:
            return None
        bit = ir.IntType(1)
        return ir.Constant(ir.VectorType(bit, self.lanes), [bit(lane < count) for lane in lanes])

    def _add_number(self, value, data, to, start) -> None:
        """To what blocks before have put there."""
        builder, v = self.builder, self.vectors
        is_first = builder.icmp_signed("==", start, LONG(0))
        before = builder.select(is_first, v.number(0.0), v.one(data, to))
        v.put(builder.fadd(value, before), data, to)

    def _row(self, leaf: str, e, own):
        """Which row of a leaf an edge reads."""
        if leaf == ALL:
            return LONG(0)
        if leaf == EDGE:
            return self.integer(self.number, e)
        return own if int(leaf) == self.loop.along else self.integer(self.ends[int(leaf)], e)

    def _edge(self, e, own, end, start, chunks, totals) -> None:
        builder, v, loop = self.builder, self.vectors, self.loop
        leaves = [
            (data, builder.mul(self._row(leaf.end, e, own), apart), leaf.wide)
            for leaf, (data, apart) in zip(loop.messages.leaves, self.leaves, strict=True)
        ]
        segment = own if loop.along == 0 else self.integer(self.ends[0], e)
        grads = [(data, builder.mul(segment, apart)) for data, apart in self.grads]
        if loop.far:
            self._expect_later(e, own, end, start, len(chunks) * self.lanes)
        number = None if all(self.summed) else self.integer(self.number, e)
        numbers = {
            at: v.spread(v.one(data, row))
            for at, (data, row, is_wide) in enumerate(leaves)
            if not is_wide
        }
        sums: list[Any] = [None] * len(totals)
        for position, (offset, left) in enumerate(chunks):
            c = builder.add(start, LONG(offset))
            values = _Values(v, [
                numbers[at] if at in numbers else v.load(data, builder.add(row, c), left)
                for at, (data, row, _) in enumerate(leaves)
            ])  # fmt: skip
            if loop.wanted:
                each = [v.load(data, builder.add(row, c), left) for data, row in grads]
                found = values.gradients(loop.messages, each, loop.wanted)
            else:
                found = [values.of(output) for output in loop.messages.outputs]
            for at, ((data, apart), summed, is_wide) in enumerate(self._described()):
                value = found[at]
                if not is_wide:
                    if left is not None:  # numbers beyond the row are functions of 0
                        value = builder.select(left, value, v.all(0.0))
                    sums[at] = value if sums[at] is None else builder.fadd(sums[at], value)
                elif summed:
                    total = totals[at][position]
                    builder.store(builder.fadd(builder.load(total), value), total)
                else:
                    v.store(value, data, builder.add(builder.mul(number, apart), c), left)
        for at, ((data, apart), summed, is_wide) in enumerate(self._described()):
            if is_wide:
                continue
            if summed:
                total = totals[at][0]
                builder.store(builder.fadd(builder.load(total), sums[at]), total)
            else:
                self._add_number(v.total(sums[at]), data, builder.mul(number, apart), start)

    def _expect_later(self, e, own, end, start, count) -> None:
        """Have what a later edge reads of these numbers brought into the cache."""
        builder, loop = self.builder, self.loop
        ahead, last = builder.add(e, LONG(AHEAD)), builder.sub(end, LONG(1))
        ahead = builder.select(builder.icmp_signed("<", ahead, last), ahead, last)
        seen: set[Any] = set()
        for leaf, (data, apart) in zip(loop.messages.leaves, self.leaves, strict=True):
            if leaf.end not in (ALL, str(loop.along)) and (leaf.end, data) not in seen:
                seen.add((leaf.end, data))
                row = builder.mul(self._row(leaf.end, ahead, own), apart)
                if leaf.wide:
                    self._expect(data, builder.add(row, start), count)
                else:
                    self._expect(data, row, 1)
        for data, apart in self.grads if loop.along else ():
            row = builder.mul(self.integer(self.ends[0], ahead), apart)
            self._expect(data, builder.add(row, start), count)

    def _expect(self, data, place, count) -> None:
        builder, v = self.builder, self.vectors
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), WORD, WORD, WORD])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for c in range(0, count, LINE // v.bytes):
            pointer = builder.gep(data, [builder.add(place, LONG(c))])
            pointer = builder.bitcast(pointer, BYTE.as_pointer())
            builder.call(function, [pointer, WORD(0), WORD(3), WORD(1)])


@lru_cache(maxsize=256)
def compiled(loop: Loop) -> Callable[..., None]:
    """The function of a loop; calls release Python's lock."""
    from numba.core.registry import cpu_target

    library = cpu_target.target_context.codegen().create_library("messages")
    module = library.create_ir_module("messages")
    arguments = [LONG.as_pointer(), LONG.as_pointer(), LONG, LONG, LONG]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), "messages")
    _LoopWriter(loop, function).write()
    with global_compiler_lock:
        library.add_ir_module(module)
        library.finalize()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    found: Any = kind(library.get_pointer_to_function("messages"))
    found.library = library  # the code lives as long as it
    return found
