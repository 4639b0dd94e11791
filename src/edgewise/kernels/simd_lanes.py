"""How the code of `simd_rows` is written: eight numbers at a time, and those that are left."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

from llvmlite import ir
from numba.core import cgutils

LANES = 8
JOINED = ("contract",)  # a product may be added before it is rounded
WORD = ir.IntType(32)
# e^r = 1 + r + r²·Σ TAIL[k] r^k for |r| ≤ ln 2 / 2, to a sixteenth of a rounding of float32
TAIL = (0.49999994, 0.16666515, 0.041668456, 0.008369419, 0.0013813145)
LN2 = (0.693359375, math.log(2) - 0.693359375)  # the first is short: n times it is exact
LEAST, MOST = -87.0, 88.5  # what is less gives 0, what is more ∞
SHIFT = 1.5 * 2**23  # adding it rounds to an integer, which the last bits then hold


class Lanes:
    """The code of one function of arrays of one kind; values are those of LLVM."""

    lanes = LANES

    def __init__(self, context, builder, kind):
        self.context, self.builder, self.kind = context, builder, kind
        self.number = context.get_value_type(kind.dtype)
        self.vector = ir.VectorType(self.number, self.lanes)
        self.bytes = kind.dtype.bitwidth // 8

    def data(self, array):
        return self.context.make_array(self.kind)(self.context, self.builder, array).data

    def head(self, place, h, apart):
        """Where the row of head h begins."""
        return self.builder.add(place, self.builder.mul(h, apart))

    def one(self, data, place):
        return self.builder.load(self.builder.gep(data, [place]))

    def put(self, value, data, place):
        self.builder.store(value, self.builder.gep(data, [place]))

    def load(self, data, place, left=None):
        """Eight numbers; where `left` has a lane, else 0."""
        pointer = self._pointer(data, place)
        if left is None:
            return self.builder.load(pointer, align=self.bytes)
        kind = ir.FunctionType(self.vector, [pointer.type, WORD, left.type, self.vector])
        function = self._function("load", kind)
        return self.builder.call(function, [pointer, WORD(self.bytes), left, self.all(0.0)])

    def store(self, value, data, place, left=None):
        pointer = self._pointer(data, place)
        if left is None:
            self.builder.store(value, pointer, align=self.bytes)
            return
        kind = ir.FunctionType(ir.VoidType(), [self.vector, pointer.type, WORD, left.type])
        function = self._function("store", kind)
        self.builder.call(function, [value, pointer, WORD(self.bytes), left])

    def _pointer(self, data, place):
        return self.builder.bitcast(self.builder.gep(data, [place]), self.vector.as_pointer())

    def _function(self, name, kind):
        name = f"llvm.masked.{name}.v{self.lanes}f{8 * self.bytes}.p0"
        return cgutils.get_or_insert_function(self.builder.module, kind, name)

    def all(self, value):
        return ir.Constant(self.vector, [value] * self.lanes)

    def spread(self, value):
        """One number in every lane."""
        none = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(none, value, WORD(0))
        lanes = ir.Constant(ir.VectorType(WORD, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, none, lanes)

    def folded(self, vector, join):
        """One number of all lanes, halves upon halves."""
        half = self.lanes // 2
        while half:
            kind = ir.VectorType(WORD, half)
            ends = (ir.Constant(kind, list(range(a, a + half))) for a in (0, half))
            low, high = (self.builder.shuffle_vector(vector, vector, end) for end in ends)
            vector, half = join(low, high), half // 2
        return self.builder.extract_element(vector, WORD(0))

    def total(self, vector):
        return self.folded(vector, self.builder.fadd)

    def plus(self, a, b, c):
        """a·b + c."""
        return self.builder.fadd(self.builder.fmul(a, b, flags=JOINED), c, flags=JOINED)

    def larger(self, a, b):
        """What is not a number is passed over if it is `a`."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def leaky(self, slope, z):
        """z where it is above 0, else slope · z; NaN stays so."""
        return self.builder.select(self.above(z), z, self.builder.fmul(slope, z))

    def above(self, z):
        return self.builder.fcmp_ordered(">", z, self.all(0.0))

    def count(self, end, run, step=1):
        """`run(0)`, `run(step)`, ... below `end`: never unrolled, for rows are short."""
        builder, word = self.builder, end.type
        with cgutils.for_range_slice(builder, word(0), end, word(step)) as (at, _):
            run(at)
            nothing = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "", side_effect=True)
            builder.call(nothing, [], attrs=("convergent",))

    def each(self, width, run):
        """`run(place, None)` for each eight of a row, `run(place, mask)` for those left."""
        builder, word = self.builder, width.type
        full = builder.and_(width, word(-self.lanes))
        self.count(full, lambda place: run(place, None), self.lanes)
        over = builder.sub(width, full)
        with builder.if_then(builder.icmp_signed("!=", over, word(0)), likely=False):
            lanes = ir.Constant(ir.VectorType(WORD, self.lanes), list(range(self.lanes)))
            left = self.spread(builder.trunc(over, WORD))
            run(full, builder.icmp_signed("<", lanes, left))

    def exp(self, x):
        """NaN stays so."""
        builder = self.builder
        if self.bytes == 8:
            kind = ir.FunctionType(self.vector, [self.vector])
            name = f"llvm.exp.v{self.lanes}f64"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x])
        words = ir.VectorType(WORD, self.lanes)
        shifted = self.plus(x, self.all(1 / math.log(2)), self.all(SHIFT))
        n = builder.fsub(shifted, self.all(SHIFT))
        r = self.plus(n, self.all(-LN2[1]), self.plus(n, self.all(-LN2[0]), x))
        found = self.all(TAIL[-1])
        for c in (*TAIL[-2::-1], 1.0, 1.0):
            found = self.plus(found, r, self.all(c))
        power = builder.shl(builder.bitcast(shifted, words), ir.Constant(words, [23] * self.lanes))
        found = builder.bitcast(builder.add(builder.bitcast(found, words), power), self.vector)
        for sign, end, value in (("<", LEAST, 0.0), (">", MOST, math.inf)):
            beyond = builder.fcmp_ordered(sign, x, self.all(end))
            found = builder.select(beyond, self.all(value), found)
        return builder.select(builder.fcmp_unordered("uno", x, x), x, found)
