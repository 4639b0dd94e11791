"""What loops compiled by numba do to short rows: sums of products, softmax, and asking for memory.

The rows of one head are short, 16 numbers are usual. The vectoriser unrolls loops for long ones,
so that short ones run number by number, and arrays of several axes cost more than the sums do.
Here arrays are flat. After each comes the place where its row begins, then how far the rows of
two heads are `apart`; places are not checked. Imported with the loops.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from edgewise.kernels.simd_lanes import LANES, WORD, Lanes

# Sums may be reordered so that they vectorise; infinities keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
AHEAD = 8  # entries between asking for a row and using it
LINE = 64  # bytes that memory sends together
n = types.intp


@intrinsic
def at(typing, a, x):
    """One number."""

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature.args[0])
        return lanes.one(lanes.data(arguments[0]), arguments[1])

    return a.dtype(a, n), generate


@intrinsic
def put(typing, a, x, value):
    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature.args[0])
        lanes.put(arguments[2], lanes.data(arguments[0]), arguments[1])
        return context.get_dummy_value()

    return types.void(a, n, a.dtype), generate


def _sums(term, scaled):
    """Each head's Σ of `term(lanes, factor, *loaded)`, times the factor if it is `scaled`."""

    def generate(context, builder, signature, arguments):
        out, o, apart, factor, *rows, width, heads = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data = [lanes.data(array) for array in (out, *rows[::3])]
        total = cgutils.alloca_once(builder, lanes.vector)
        every = lanes.spread(factor)

        def head(h):
            starts = [lanes.head(x, h, a) for x, a in zip(rows[1::3], rows[2::3], strict=True)]

            def run(place, left):
                found = [
                    lanes.load(array, builder.add(start, place), left)
                    for array, start in zip(data[1:], starts, strict=True)
                ]
                a, b = term(lanes, every, *found)
                builder.store(lanes.plus(a, b, builder.load(total)), total)

            builder.store(lanes.all(0.0), total)
            lanes.each(width, run)
            found = lanes.total(builder.load(total))
            found = builder.fmul(factor, found) if scaled else found
            lanes.put(found, data[0], lanes.head(o, h, apart))

        lanes.count(heads, head)
        return context.get_dummy_value()

    return generate


@intrinsic
def dots(typing, out, o, oa, scale, a, x, xa, b, y, ya, width, heads):
    """out = scale · Σ a·b."""
    generate = _sums(lambda lanes, scale, a, b: (a, b), scaled=True)
    return types.void(out, n, n, out.dtype, a, n, n, b, n, n, n, n), generate


@intrinsic
def two_dots(typing, out, o, oa, a, x, xa, b, y, ya, width, c, z, za, d, u, ua, other, heads):
    """out = Σ a·b + Σ c·d, of `width` and of `other` numbers."""

    def generate(context, builder, signature, arguments):
        out, o, apart, *rest, heads = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data, total = lanes.data(out), cgutils.alloca_once(builder, lanes.vector)
        pairs = [
            (lanes.data(p[0]), *p[1:3], lanes.data(p[3]), *p[4:]) for p in (rest[:7], rest[7:])
        ]

        def head(h):
            builder.store(lanes.all(0.0), total)
            for a, x, xa, b, y, ya, width in pairs:
                left, right = lanes.head(x, h, xa), lanes.head(y, h, ya)

                def run(place, rest, a=a, b=b, left=left, right=right):
                    one = lanes.load(a, builder.add(left, place), rest)
                    other = lanes.load(b, builder.add(right, place), rest)
                    builder.store(lanes.plus(one, other, builder.load(total)), total)

                lanes.each(width, run)
            lanes.put(lanes.total(builder.load(total)), data, lanes.head(o, h, apart))

        lanes.count(heads, head)
        return context.get_dummy_value()

    return types.void(out, n, n, a, n, n, b, n, n, n, c, n, n, d, n, n, n, n), generate


@intrinsic
def mix(typing, out, o, f, z, a, x, xa, heads, g, u, b, y, ya, others, width):
    """out = Σ over heads of f·a, and over others of g·b: one row, which is not read."""

    def generate(context, builder, signature, arguments):
        out, o, *rest, width = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data, total = lanes.data(out), cgutils.alloca_once(builder, lanes.vector)
        sums = [(lanes.data(p[0]), p[1], lanes.data(p[2]), *p[3:]) for p in (rest[:6], rest[6:])]

        def run(place, left):
            builder.store(lanes.all(0.0), total)
            for factor, z, a, x, xa, heads in sums:

                def head(h, factor=factor, z=z, a=a, x=x, xa=xa):
                    every = lanes.spread(lanes.one(factor, builder.add(z, h)))
                    found = lanes.load(a, builder.add(lanes.head(x, h, xa), place), left)
                    builder.store(lanes.plus(every, found, builder.load(total)), total)

                lanes.count(heads, head)
            lanes.store(builder.load(total), data, builder.add(o, place), left)

        lanes.each(width, run)
        return context.get_dummy_value()

    return types.void(out, n, f, n, a, n, n, n, g, n, b, n, n, n, n), generate


@intrinsic
def leaky_dots(typing, out, o, oa, slope, t, z, ta, a, x, xa, b, y, ya, width, heads):
    """out = Σ t · f(a + b)."""

    def term(lanes, slope, t, a, b):
        return t, lanes.leaky(slope, lanes.builder.fadd(a, b))

    kind = types.void(out, n, n, out.dtype, t, n, n, a, n, n, b, n, n, n, n)
    return kind, _sums(term, scaled=False)


def _updates(change):
    """Each head's row of `out` becomes `change(lanes, factor, out, *loaded)`."""

    def generate(context, builder, signature, arguments):
        out, o, apart, factor, f, fa, *rows, width, heads = arguments
        lanes = Lanes(context, builder, signature.args[0])
        slope = None if len(rows) % 3 == 0 else lanes.spread(rows.pop())
        data = [lanes.data(array) for array in (out, factor, *rows[::3])]

        def head(h):
            every = lanes.spread(lanes.one(data[1], lanes.head(f, h, fa)))
            here = lanes.head(o, h, apart)
            starts = [lanes.head(x, h, a) for x, a in zip(rows[1::3], rows[2::3], strict=True)]

            def run(place, left):
                found = [
                    lanes.load(array, builder.add(start, place), left)
                    for array, start in zip(data[2:], starts, strict=True)
                ]
                if slope is not None:
                    found.append(slope)
                to = builder.add(here, place)
                value = change(lanes, every, lanes.load(data[0], to, left), *found)
                lanes.store(value, data[0], to, left)

            lanes.each(width, run)

        lanes.count(heads, head)
        return context.get_dummy_value()

    return generate


@intrinsic
def adds(typing, out, o, oa, factor, f, fa, a, x, xa, width, heads):
    """out += factor·a."""
    generate = _updates(lambda lanes, factor, out, a: lanes.plus(factor, a, out))
    return types.void(out, n, n, factor, n, n, a, n, n, n, n), generate


@intrinsic
def add_leaky(typing, out, o, oa, factor, f, fa, a, x, xa, b, y, ya, slope, width, heads):
    """out += factor·f(a + b)."""

    def change(lanes, factor, out, a, b, slope):
        return lanes.plus(factor, lanes.leaky(slope, lanes.builder.fadd(a, b)), out)

    kind = types.void(out, n, n, factor, n, n, a, n, n, b, n, n, out.dtype, n, n)
    return kind, _updates(change)


@intrinsic
def add_slopes(
    typing, out, o, oa, factor, f, fa, t, z, ta, a, x, xa, b, y, ya, slope, width, heads
):
    """out += factor·t·f'(a + b)."""

    def change(lanes, factor, out, t, a, b, slope):
        builder = lanes.builder
        derivative = builder.select(lanes.above(builder.fadd(a, b)), lanes.all(1.0), slope)
        return lanes.plus(builder.fmul(factor, t), derivative, out)

    kind = types.void(out, n, n, factor, n, n, t, n, n, a, n, n, b, n, n, out.dtype, n, n)
    return kind, _updates(change)


@intrinsic
def fill(typing, out, o, oa, value, width, heads):
    """out = value."""

    def generate(context, builder, signature, arguments):
        out, o, apart, value, width, heads = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data, every = lanes.data(out), lanes.spread(value)

        def head(h):
            here = lanes.head(o, h, apart)

            def run(place, left):
                lanes.store(every, data, builder.add(here, place), left)

            lanes.each(width, run)

        lanes.count(heads, head)
        return context.get_dummy_value()

    return types.void(out, n, n, out.dtype, n, n), generate


@intrinsic
def expect(typing, a, x, xa, width, heads):
    """Have the rows brought into the cache.

    Rows are read in random order, so most of the time of such loops was waiting for memory.
    """

    def generate(context, builder, signature, arguments):
        a, x, apart, width, heads = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data = lanes.data(a)

        def line(place):
            pointer = builder.bitcast(builder.gep(data, [place]), ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [pointer.type, WORD, WORD, WORD])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [pointer, WORD(0), WORD(3), WORD(1)])

        def head(h):
            here = lanes.head(x, h, apart)
            lanes.count(width, lambda place: line(builder.add(here, place)), LINE // lanes.bytes)

        lanes.count(heads, head)
        return context.get_dummy_value()

    return types.void(a, n, n, n, n), generate


@intrinsic
def largest(typing, a, x, count):
    """Of `count` numbers, a multiple of 8; what is not a number is passed over."""

    def generate(context, builder, signature, arguments):
        a, x, count = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data = lanes.data(a)
        top = cgutils.alloca_once(builder, lanes.vector)
        builder.store(lanes.all(-math.inf), top)

        def run(place):
            found = lanes.load(data, builder.add(x, place))
            builder.store(lanes.larger(found, builder.load(top)), top)

        lanes.count(count, run, LANES)
        return lanes.folded(builder.load(top), lanes.larger)

    return a.dtype(a, n, n), generate


@intrinsic
def exps(typing, a, x, count, less):
    """exp(a - less) in place of a, and their sum; `count` is a multiple of 8."""

    def generate(context, builder, signature, arguments):
        a, x, count, less = arguments
        lanes = Lanes(context, builder, signature.args[0])
        data, less = lanes.data(a), lanes.spread(less)
        total = cgutils.alloca_once(builder, lanes.vector)
        builder.store(lanes.all(0.0), total)

        def run(place):
            to = builder.add(x, place)
            found = lanes.exp(builder.fsub(lanes.load(data, to), less))
            lanes.store(found, data, to)
            builder.store(builder.fadd(found, builder.load(total)), total)

        lanes.count(count, run, LANES)
        return lanes.total(builder.load(total))

    return a.dtype(a, n, n, a.dtype), generate


@njit(nogil=True, cache=True, inline="always")
def longest(ptr, first, last):
    """The most entries of a piece, up to a multiple of LANES."""
    most = 0
    for p in range(first, last):
        most = max(most, ptr[p + 1] - ptr[p])
    return up(most)


@njit(nogil=True, cache=True, inline="always")
def up(count):
    return (count + LANES - 1) & -LANES


@njit(nogil=True, cache=True, inline="always")
def span(apart, width, heads):
    """The width and the number of rows that memory holds: heads side by side are one."""
    return (heads * width, 1) if apart == width else (width, heads)


@njit(nogil=True, cache=True, inline="always")
def ahead(array, rows, e):
    """Have the row of a matrix that a later entry reads brought into the cache."""
    width = array.shape[1]
    expect(array, rows[min(e + AHEAD, len(rows) - 1)] * width, 0, width, 1)
