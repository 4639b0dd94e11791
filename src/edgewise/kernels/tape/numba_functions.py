"""Functions of single numbers that loops vectorise: tanh and the logistic function in float32.

    eˣ − 1 = 2ᵏ (eʳ − 1) + 2ᵏ − 1,  x = k log 2 + r,  |r| ≤ log 2 / 2

eʳ − 1 is its Taylor polynomial of degree 7, whose remainder is below the precision of float32.
float64 has those of the C library. There are no branches: NaN stays NaN through all of it.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

PER_LOG2 = np.float32(1 / math.log(2))
HIGH = np.float32(0.693359375)  # log 2 in two parts: products of the first with k are exact
LOW = np.float32(math.log(2) - 0.693359375)
C2, C3, C4, C5, C6, C7 = (np.float32(1 / math.factorial(n)) for n in range(2, 8))
ONE, TWO = np.float32(1), np.float32(2)
LARGEST = np.float32(88)  # e⁸⁸ is finite
FLAT = np.float32(10)  # tanh is 1 from there on
NUMBER = types.float32


@intrinsic
def part(typing, a, start, count):
    """The slice from `start` on, inside the array: nothing is checked, nothing is counted."""

    def generate(context, builder, signature, arguments):
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        found = context.make_array(signature.return_type)(context, builder)
        size = context.get_constant(types.intp, a.dtype.bitwidth // 8)
        data = builder.gep(source.data, [arguments[1]])
        known = {"shape": [arguments[2]], "strides": [size], "itemsize": size}
        context.populate_array(found, data=data, meminfo=None, parent=None, **known)
        return found._getvalue()

    return types.Array(a.dtype, 1, "C")(a, types.intp, types.intp), generate


@intrinsic
def call_at(typing, address, a):
    """The function at an address in memory, of the numbers of an array."""

    def generate(context, builder, signature, arguments):
        source = context.make_array(signature.args[1])(context, builder, arguments[1])
        kind = ir.FunctionType(ir.VoidType(), [source.data.type])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [source.data])
        return context.get_dummy_value()

    return types.void(types.int64, a), generate


@intrinsic
def nearest(typing, x):
    """The nearest integer, as a number."""

    def generate(context, builder, signature, arguments):
        return builder.call(
            builder.module.declare_intrinsic("llvm.rint", [ir.FloatType()]), arguments
        )

    return NUMBER(NUMBER), generate


@intrinsic
def power_of_two(typing, k):
    """2ᵏ of an integer between -126 and 127, by its bits."""

    def generate(context, builder, signature, arguments):
        integer = builder.fptosi(arguments[0], ir.IntType(32))
        biased = builder.add(integer, ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return NUMBER(NUMBER), generate


@intrinsic
def clamped(typing, x, most):
    """The nearest number between -most and most; NaN of NaN."""

    def generate(context, builder, signature, arguments):
        x, most = arguments
        least = builder.fneg(most)
        x = builder.select(builder.fcmp_ordered(">", x, most), most, x)
        return builder.select(builder.fcmp_ordered("<", x, least), least, x)

    return NUMBER(NUMBER, NUMBER), generate


@njit(error_model="numpy")
def exponential_less_one(x):
    """eˣ − 1 for |x| ≤ 88, in float32."""
    k = nearest(x * PER_LOG2)
    scale = power_of_two(k)
    r = x - k * HIGH - k * LOW
    high = C4 + r * (C5 + r * (C6 + r * C7))
    inner = r + r * r * (C2 + r * (C3 + r * high))
    return scale * inner + (scale - ONE)


def hyperbolic(x):
    """tanh x."""


def logistic(x):
    """1 / (1 + e⁻ˣ)."""


@overload(hyperbolic, jit_options={"error_model": "numpy"})
def _hyperbolic(x):
    if x == NUMBER:

        def narrow(x):
            y = clamped(x, FLAT)
            grown = exponential_less_one(y + y)
            return grown / (grown + TWO)

        return narrow
    return lambda x: math.tanh(x)


@overload(logistic, jit_options={"error_model": "numpy"})
def _logistic(x):
    if x == NUMBER:
        return lambda x: ONE / (TWO + exponential_less_one(-clamped(x, LARGEST)))
    return lambda x: 1.0 / (1.0 + math.exp(-x))
