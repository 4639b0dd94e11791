"""The instructions of `kernels.scan` over stretches of rows, and their gradients.

A line of `code` is op, offset and width of out, a and b, where the index and the matrix begin.
Matrices lie one after another: turned, (in, out), for values, (out, in) for gradients. Loops run
over slices: places that are known to be inside an array vectorise.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

from numba import njit

from edgewise.kernels.scan.numba_functions import hyperbolic, logistic
from edgewise.kernels.scan.program import (
    ADD,
    AFFINE,
    EXP,
    GATHER,
    LINEAR,
    MULTIPLY,
    RELU,
    SCATTER,
    SIGMOID,
    SQUARE,
    TANH,
)
from edgewise.kernels.simd_rows import FAST


@njit(nogil=True, cache=True, fastmath=FAST)
def multiplied(y, matrix, x):
    """y += xᵀ M: rows of the matrix are read in order, four at a time."""
    width, across = len(y), len(x)
    k = 0
    while k + 4 <= across:
        p, q, r, s = x[k], x[k + 1], x[k + 2], x[k + 3]
        start = k * width
        m0, m1 = matrix[start : start + width], matrix[start + width : start + 2 * width]
        start += 2 * width
        m2, m3 = matrix[start : start + width], matrix[start + width : start + 2 * width]
        for f in range(width):
            y[f] += p * m0[f] + q * m1[f] + r * m2[f] + s * m3[f]
        k += 4
    while k < across:
        p, m0 = x[k], matrix[k * width : (k + 1) * width]
        for f in range(width):
            y[f] += p * m0[f]
        k += 1


@njit(nogil=True, cache=True, fastmath=FAST)
def added(y, x):
    for f in range(len(y)):
        y[f] += x[f]


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(code, numbers, index, which, first, last, matrices, work):
    for step in range(len(which)):
        j, lo, hi = which[step], first[step], last[step]
        op, out, w, a, wa, b, wb, ix, m = code[j]
        if op == GATHER:
            for i in range(lo, hi):
                o, s = out + i * w, a + index[ix + i] * w
                work[o : o + w] = work[s : s + w]
        elif op == SCATTER:
            for i in range(lo, hi):
                o, s = out + index[ix + i] * w, a + i * w
                added(work[o : o + w], work[s : s + w])
        elif op == LINEAR:
            matrix = matrices[m : m + w * wa]
            for i in range(lo, hi):
                o, s = out + i * w, a + i * wa
                multiplied(work[o : o + w], matrix, work[s : s + wa])
        elif op in (ADD, MULTIPLY):
            y, x = work[out + lo * w : out + hi * w], work[a + lo * wa : a + hi * wa]
            pairs(op, y, x, work[b + lo * wb : b + hi * wb], w, wa, wb)
        else:
            y, x = work[out + lo * w : out + hi * w], work[a + lo * wa : a + hi * wa]
            functions(op, y, x, numbers[j, 0], numbers[j, 1])


@njit(nogil=True, cache=True, fastmath=FAST)
def functions(op, y, x, alpha, beta):
    zero = y.dtype.type(0)
    if op == TANH:
        for f in range(len(y)):
            y[f] = hyperbolic(x[f])
    elif op == SIGMOID:
        for f in range(len(y)):
            y[f] = logistic(x[f])
    elif op == AFFINE:
        for f in range(len(y)):
            y[f] = alpha * x[f] + beta
    elif op == RELU:
        for f in range(len(y)):
            y[f] = zero if x[f] < zero else x[f]
    elif op == EXP:
        for f in range(len(y)):
            y[f] = math.exp(x[f])
    elif op == SQUARE:
        for f in range(len(y)):
            y[f] = x[f] * x[f]


@njit(nogil=True, cache=True, fastmath=FAST)
def pairs(op, y, a, b, w, wa, wb):
    """Sums and products; a number in each row stands for as many as there are."""
    if op == ADD and wa == w:
        added(y, a)
    elif op == ADD:
        for i in range(len(a)):
            x, row = a[i], y[i * w : (i + 1) * w]
            for f in range(w):
                row[f] += x
    elif wa == wb:
        for f in range(len(y)):
            y[f] = a[f] * b[f]
    else:
        if wa == 1:
            a, b = b, a
        for i in range(len(b)):
            x, row, into = b[i], a[i * w : (i + 1) * w], y[i * w : (i + 1) * w]
            for f in range(w):
                into[f] = x * row[f]


@njit(nogil=True, cache=True, fastmath=FAST)
def backward(code, numbers, index, which, first, last, matrices, work, grads):
    for step in range(len(which) - 1, -1, -1):
        j, lo, hi = which[step], first[step], last[step]
        op, out, w, a, wa, b, wb, ix, m = code[j]
        if op == GATHER:
            for i in range(lo, hi):
                o, s = out + i * w, a + index[ix + i] * w
                added(grads[s : s + w], grads[o : o + w])
        elif op == SCATTER:
            for i in range(lo, hi):
                o, s = out + index[ix + i] * w, a + i * w
                added(grads[s : s + w], grads[o : o + w])
        elif op == LINEAR:
            matrix = matrices[m : m + w * wa]
            for i in range(lo, hi):
                o, s = out + i * w, a + i * wa
                multiplied(grads[s : s + wa], matrix, grads[o : o + w])
        elif op in (ADD, MULTIPLY):
            dy, da = grads[out + lo * w : out + hi * w], grads[a + lo * wa : a + hi * wa]
            sides = slice(a + lo * wa, a + hi * wa), slice(b + lo * wb, b + hi * wb)
            pair_slopes(op, dy, da, grads[sides[1]], work[sides[0]], work[sides[1]], w, wa, wb)
        else:
            rows, read = slice(out + lo * w, out + hi * w), slice(a + lo * w, a + hi * w)
            slopes(op, grads[rows], grads[read], work[rows], work[read], numbers[j, 0])


@njit(nogil=True, cache=True, fastmath=FAST)
def slopes(op, dy, dx, y, x, alpha):
    one, zero = y.dtype.type(1), y.dtype.type(0)
    if op == TANH:
        for f in range(len(y)):
            dx[f] += dy[f] * (one - y[f] * y[f])
    elif op == SIGMOID:
        for f in range(len(y)):
            dx[f] += dy[f] * y[f] * (one - y[f])
    elif op == AFFINE:
        for f in range(len(y)):
            dx[f] += alpha * dy[f]
    elif op == RELU:
        for f in range(len(y)):
            dx[f] += zero if y[f] <= zero else dy[f]
    elif op == EXP:
        for f in range(len(y)):
            dx[f] += dy[f] * y[f]
    elif op == SQUARE:
        for f in range(len(y)):
            dx[f] += dy[f] * (x[f] + x[f])


@njit(nogil=True, cache=True, fastmath=FAST)
def pair_slopes(op, dy, da, db, a, b, w, wa, wb):
    if op == ADD and wa == w:
        added(da, dy)
    elif op == ADD:
        for i in range(len(da)):
            da[i] += summed(dy[i * w : (i + 1) * w])
    elif wa == wb:
        for f in range(len(dy)):
            da[f] += dy[f] * b[f]
        for f in range(len(dy)):
            db[f] += dy[f] * a[f]
    else:
        if wa == 1:
            a, b, da, db = b, a, db, da
        for i in range(len(b)):
            start, stop = i * w, (i + 1) * w
            scaled(da[start:stop], dy[start:stop], b[i])
            db[i] += dotted(a[start:stop], dy[start:stop])


@njit(nogil=True, cache=True, fastmath=FAST)
def scaled(y, x, factor):
    for f in range(len(y)):
        y[f] += factor * x[f]


@njit(nogil=True, cache=True, fastmath=FAST)
def summed(x):
    total = x.dtype.type(0)
    for f in range(len(x)):
        total += x[f]
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def dotted(x, y):
    total = x.dtype.type(0)
    for f in range(len(x)):
        total += x[f] * y[f]
    return total
