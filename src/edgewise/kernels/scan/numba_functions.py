"""Functions of single numbers that loops vectorise: tanh and the logistic function in float32.

    eˣ − 1 = 2ᵏ (eʳ − 1) + 2ᵏ − 1,  x = k log 2 + r,  |r| ≤ log 2 / 2

eʳ − 1 is its Taylor polynomial of degree 7, whose remainder is below the precision of float32.
float64 has those of the C library.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

LOG2, PER_LOG2 = np.float32(math.log(2)), np.float32(1 / math.log(2))
HIGH = np.float32(0.693359375)  # log 2 in two parts: products of the first with k are exact
LOW = np.float32(math.log(2) - 0.693359375)
C2, C3, C4, C5, C6, C7 = (np.float32(1 / math.factorial(n)) for n in range(2, 8))
ONE, TWO, HALF, ZERO = np.float32(1), np.float32(2), np.float32(0.5), np.float32(0)
LARGEST = np.float32(88)  # e⁸⁸ is finite
FLAT = np.float32(10)  # tanh is 1 from there on


@intrinsic
def power_of_two(typing, k):
    """2ᵏ of an int32 between -126 and 127, by its bits."""

    def generate(context, builder, signature, arguments):
        bits = builder.shl(
            builder.add(arguments[0], ir.Constant(ir.IntType(32), 127)),
            ir.Constant(ir.IntType(32), 23),
        )
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.int32), generate


@njit(inline="always")
def exponential_less_one(x):
    """eˣ − 1 for |x| ≤ 88, in float32."""
    z = x * PER_LOG2
    k = np.int32(z + HALF if z >= ZERO else z - HALF)
    scale, times = power_of_two(k), np.float32(k)
    r = x - times * HIGH - times * LOW
    high = C4 + r * (C5 + r * (C6 + r * C7))
    inner = r + r * r * (C2 + r * (C3 + r * high))
    return scale * inner + (scale - ONE)


def hyperbolic(x):
    """tanh x."""


def logistic(x):
    """1 / (1 + e⁻ˣ)."""


@overload(hyperbolic, inline="always")
def _hyperbolic(x):
    if x == types.float32:

        def narrow(x):
            y = min(max(x, -FLAT), FLAT)
            grown = exponential_less_one(y + y)
            return grown / (grown + TWO) if x == x else x

        return narrow
    return lambda x: math.tanh(x)


@overload(logistic, inline="always")
def _logistic(x):
    if x == types.float32:

        def narrow(x):
            y = min(max(x, -LARGEST), LARGEST)
            return ONE / (TWO + exponential_less_one(-y)) if x == x else x

        return narrow
    return lambda x: 1.0 / (1.0 + math.exp(-x))
