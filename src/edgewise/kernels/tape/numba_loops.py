"""Instructions over one array of numbers, compiled by numba once for all programs.

Columns that follow one another are slices, which vectorise; others are computed number by number.
Where an instruction writes what it reads, its loop has one array: two that may be the same do not
vectorise.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math
from typing import Any

from numba import njit

from edgewise.kernels.simd_rows import FAST
from edgewise.kernels.tape.instructions import OPS
from edgewise.kernels.tape.numba_functions import hyperbolic, logistic, part

# a quotient of zero is infinite: a check of every division does not vectorise
LOOP: Any = {"nogil": True, "cache": True, "error_model": "numpy"}
GATHER, GATHER_ADD, PUT, SCATTER_ADD, SCATTER_MAX, SCATTER_MIN = range(6)
PRODUCT, PRODUCT_ADD, DOT_ADD, SUM, LARGEST, SMALLEST = range(6, 12)
COPY, NEG, EXP, LOG, SQRT, RECIPROCAL, TANH, SIGMOID, RELU, ABS = range(12, 22)
SIGN, SIN, COS, ERF, LOG1P, NOT = range(22, 28)
ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, GT, GE, LT, LE, EQ, NE, POW, AND, OR = range(28, 43)
WHERE, MULTIPLY_ADD, SLOPE, SLOPE_ADD = range(43, 47)
SHORT = 8  # numbers of a row
assert len(OPS) == SLOPE_ADD + 1


@njit(**LOOP)
def one(op, x):
    """A function of one number."""
    if op == COPY:
        return x
    if op == NEG:
        return -x
    if op == EXP:
        return math.exp(x)
    if op == LOG:
        return math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)
    if op == SQRT:
        return math.sqrt(x) if x >= 0 else math.nan
    if op == RECIPROCAL:
        return quotient(1.0, x)
    if op == TANH:
        return math.tanh(x)
    if op == SIGMOID:
        return 1.0 / (1.0 + math.exp(-x)) if x > -80 else math.exp(x)
    if op == RELU:
        return x if x > 0 or x != x else 0.0
    if op == ABS:
        return abs(x)
    if op == SIGN:
        return 1.0 if x > 0 else (-1.0 if x < 0 else x)
    if op == SIN:
        return math.sin(x)
    if op == COS:
        return math.cos(x)
    if op == ERF:
        return math.erf(x)
    if op == LOG1P:
        return math.log1p(x) if x > -1 else (-math.inf if x == -1 else math.nan)
    return 1.0 if x == 0 else 0.0


@njit(**LOOP)
def slope_of(op, x):
    """The derivative of a function, of its result or its argument, as `SLOPES` says."""
    if op == TANH:
        return 1 - x * x
    if op == SIGMOID:
        return x * (1 - x)
    if op == RELU:
        return 1.0 if x > 0 else 0.0
    if op == EXP:
        return x
    if op == SQRT:
        return quotient(0.5, x)
    if op == SIN:
        return math.cos(x)
    if op == COS:
        return -math.sin(x)
    if op == ABS:
        return 1.0 if x > 0 else (-1.0 if x < 0 else x)
    return quotient(1.0, x)  # log


@njit(**LOOP)
def quotient(x, y):
    if y != 0:
        return x / y
    if x == 0 or x != x:
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


@njit(**LOOP)
def two(op, x, y):
    """A function of two numbers."""
    if op == ADD:
        return x + y
    if op == MUL:
        return x * y
    if op == SUB:
        return x - y
    if op == DIV:
        return quotient(x, y)
    if op == MAXIMUM:
        return x if x >= y or x != x else y
    if op == MINIMUM:
        return x if x <= y or x != x else y
    if op == GT:
        return 1.0 if x > y else 0.0
    if op == GE:
        return 1.0 if x >= y else 0.0
    if op == LT:
        return 1.0 if x < y else 0.0
    if op == LE:
        return 1.0 if x <= y else 0.0
    if op == EQ:
        return 1.0 if x == y else 0.0
    if op == NE:
        return 1.0 if x != y else 0.0
    if op == POW:
        return power(x, y)
    if op == AND:
        return 1.0 if x != 0 and y != 0 else 0.0
    return 1.0 if x != 0 or y != 0 else 0.0


@njit(**LOOP)
def power(x, y):
    if y == 2.0:
        return x * x
    if y == 1.0:
        return x
    if x == 0 and y < 0:
        return math.inf
    return math.nan if x < 0 and y != math.floor(y) else x**y


@njit(**LOOP)
def run(code, steps, first, last, index, work):
    """The steps from `first` up to `last`."""
    lines, width = code.reshape(-1), code.shape[1]
    for at in range(first, last):
        line, low, high = part(lines, steps[at, 0] * width, width), steps[at, 1], steps[at, 2]
        op = line[0]
        if op >= COPY:
            if line[2] <= SHORT and high - low == 1 and op != WHERE:
                short(op, line, low, work)
            else:
                elementwise(line, low, high, work)
        elif op == SUM and high - low == 1 and line[2] <= SHORT:
            total, q = work.dtype.type(0), line[6] + low * line[7]
            for _ in range(line[2]):
                total += work[q]
                q += line[8]
            work[line[3] + low * line[4]] = total
        elif (op in (GATHER, SCATTER_ADD)) and line[2] == 1:
            single(op, line, low, high, index, work)
        elif op <= SCATTER_MIN:
            moved(line, low, high, index, work)
        elif op <= PRODUCT_ADD:
            product(line, low, high, work)
        else:
            reduced(line, low, high, work)


@njit(**LOOP)
def moved(line, low, high, index, work):
    op, n, ix = line[0], line[2], line[15]
    o, so, to = line[3], line[4], line[5]
    a, sa, ta = line[6], line[7], line[8]
    for i in range(low, high):
        k = index[ix + i]
        if op <= GATHER_ADD:
            p, q = o + i * so, a + k * sa
        else:
            p, q = o + k * so, a + i * sa
        if to == 1 and ta == 1 and n > 1 and op < SCATTER_MAX:
            if op in (GATHER, PUT):
                part(work, p, n)[:] = part(work, q, n)
            else:
                added(part(work, p, n), part(work, q, n))
            continue
        for f in range(n):
            x, y = work[q + f * ta], work[p + f * to]
            if op in (GATHER_ADD, SCATTER_ADD):
                x = y + x
            elif op == SCATTER_MAX:
                x = two(MAXIMUM, y, x)
            elif op == SCATTER_MIN:
                x = two(MINIMUM, y, x)
            work[p + f * to] = x


@njit(**LOOP, fastmath=FAST)
def product(line, low, high, work):
    """Rows of the right side in order where they are slices, else sums of products."""
    op, n = line[0], line[2]
    o, so, to = line[3], line[4], line[5]
    a, sa, ta = line[6], line[7], line[8]
    b, sb, tb, inner = line[9], line[10], line[11], line[12]
    slices = to == 1 and tb == 1 and ta == 1 and sb == n
    if slices:
        if op == PRODUCT:
            for i in range(low, high):
                part(work, o + i * so, n)[:] = 0
        matrix = part(work, b, inner * n)
        while low + 4 <= high:
            p, q = o + low * so, a + low * sa
            four(
                *(part(work, p, n), part(work, p + so, n)),
                *(part(work, p + 2 * so, n), part(work, p + 3 * so, n)),
                *(matrix, part(work, q, inner), part(work, q + sa, inner)),
                *(part(work, q + 2 * sa, inner), part(work, q + 3 * sa, inner)),
            )
            low += 4
    for i in range(low, high):
        p, q = o + i * so, a + i * sa
        if slices:
            multiplied(part(work, p, n), matrix, part(work, q, inner))
        elif to == 1 and tb == 1:
            if op == PRODUCT:
                part(work, p, n)[:] = 0
            for k in range(inner):
                weighted(part(work, p, n), part(work, b + k * sb, n), work[q + k * ta])
        elif ta == 1 and sb == 1:
            for j in range(n):
                r = b + j * tb
                total = dotted(part(work, q, inner), part(work, r, inner))
                work[p + j * to] = total if op == PRODUCT else work[p + j * to] + total
        else:
            for j in range(n):
                total = work.dtype.type(0)
                for k in range(inner):
                    total += work[q + k * ta] * work[b + k * sb + j * tb]
                work[p + j * to] = total if op == PRODUCT else work[p + j * to] + total


@njit(**LOOP, fastmath=FAST)
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


@njit(**LOOP, fastmath=FAST)
def weighted(y, x, factor):
    for f in range(len(y)):
        y[f] += factor * x[f]


@njit(**LOOP, fastmath=FAST)
def four(y0, y1, y2, y3, matrix, x0, x1, x2, x3):
    """The same for four rows, for which the matrix is read once."""
    width, across = len(y0), len(x0)
    k = 0
    while k + 4 <= across:
        p0, q0, r0, s0 = x0[k], x0[k + 1], x0[k + 2], x0[k + 3]
        p1, q1, r1, s1 = x1[k], x1[k + 1], x1[k + 2], x1[k + 3]
        p2, q2, r2, s2 = x2[k], x2[k + 1], x2[k + 2], x2[k + 3]
        p3, q3, r3, s3 = x3[k], x3[k + 1], x3[k + 2], x3[k + 3]
        start = k * width
        m0, m1 = matrix[start : start + width], matrix[start + width : start + 2 * width]
        start += 2 * width
        m2, m3 = matrix[start : start + width], matrix[start + width : start + 2 * width]
        for f in range(width):
            a, b, c, d = m0[f], m1[f], m2[f], m3[f]
            y0[f] += p0 * a + q0 * b + r0 * c + s0 * d
            y1[f] += p1 * a + q1 * b + r1 * c + s1 * d
            y2[f] += p2 * a + q2 * b + r2 * c + s2 * d
            y3[f] += p3 * a + q3 * b + r3 * c + s3 * d
        k += 4
    while k < across:
        p, q, r, s, m0 = x0[k], x1[k], x2[k], x3[k], matrix[k * width : (k + 1) * width]
        for f in range(width):
            y0[f] += p * m0[f]
            y1[f] += q * m0[f]
            y2[f] += r * m0[f]
            y3[f] += s * m0[f]
        k += 1


@njit(**LOOP)
def reduced(line, low, high, work):
    """An aggregation of each row, or the sum of products of two rows."""
    op, n, o, so = line[0], line[2], line[3], line[4]
    a, sa, ta = line[6], line[7], line[8]
    b, sb, tb = line[9], line[10], line[11]
    for i in range(low, high):
        p = a + i * sa
        if op == DOT_ADD:
            q, total = b + i * sb, work[o + i * so]
            for f in range(n):
                total += work[p + f * ta] * work[q + f * tb]
        elif op == SUM:
            total = work.dtype.type(0)
            for f in range(n):
                total += work[p + f * ta]
        else:
            total = work[p]
            for f in range(1, n):
                x = work[p + f * ta]
                if x != x or (x > total if op == LARGEST else x < total):
                    total = x
        work[o + i * so] = total


@njit(**LOOP)
def elementwise(line, low, high, work):
    op, n = line[0], line[2]
    o, so, to = line[3], line[4], line[5]
    a, sa, ta = line[6], line[7], line[8]
    b, sb, tb = line[9], line[10], line[11]
    single = op < ADD
    slices = to == 1 and ta == 1 and op != WHERE and (single or tb == 1 or tb == 0)
    rows = high - low
    o, a, b = o + low * so, a + low * sa, b + low * sb
    flat = so == n * to and sa == n * ta and (single or sb == n * tb) and op != WHERE
    if rows > 1 and flat:
        rows, n = 1, rows * n
    for i in range(rows):
        p, q, r = o + i * so, a + i * sa, b + i * sb
        if slices and single and vector(op, p == q, part(work, p, n), part(work, q, n)):
            continue
        if slices and not single:
            y, x = part(work, p, n), part(work, q, n)
            if tb == 1 and pairs(op, line[15], p == q, y, x, part(work, r, n)):
                continue
            if tb == 0 and scaled(op, p == q, y, x, work[r]):
                continue
        numbers(line, low + i, n, p, q, r, work)


@njit(**LOOP)
def short(op, line, row, work):
    """A row of few numbers, for which a loop over slices takes longer to begin than to run."""
    n, function = line[2], line[15]
    p, q, r = line[3] + row * line[4], line[6] + row * line[7], line[9] + row * line[10]
    to, ta, tb = line[5], line[8], line[11]
    for _ in range(n):
        x = work[q]
        if op < ADD:
            work[p] = one(op, x)
        elif op == MUL:
            work[p] = x * work[r]
        elif op == ADD:
            work[p] = x + work[r]
        elif op == SLOPE:
            work[p] = x * slope_of(function, work[r])
        elif op == MULTIPLY_ADD:
            work[p] += x * work[r]
        elif op == SLOPE_ADD:
            work[p] += x * slope_of(function, work[r])
        else:
            work[p] = two(op, x, work[r])
        p += to
        q += ta
        r += tb


@njit(**LOOP)
def single(op, line, low, high, index, work):
    """Rows of one number."""
    at, o, so, a, sa = line[15], line[3], line[4], line[6], line[7]
    if op == GATHER:
        for i in range(low, high):
            work[o + i * so] = work[a + index[at + i] * sa]
    else:
        for i in range(low, high):
            work[o + index[at + i] * so] += work[a + i * sa]


@njit(**LOOP)
def numbers(line, row, n, p, q, r, work):
    """One number after another."""
    op, to, ta, tb, tc, function = line[0], line[5], line[8], line[11], line[14], line[15]
    c = line[12] + row * line[13]
    for f in range(n):
        x = work[q + f * ta]
        if op < ADD:
            work[p + f * to] = one(op, x)
        elif op == WHERE:
            work[p + f * to] = work[r + f * tb] if x != 0 else work[c + f * tc]
        elif op == MULTIPLY_ADD:
            work[p + f * to] += x * work[r + f * tb]
        elif op == SLOPE:
            work[p + f * to] = x * slope_of(function, work[r + f * tb])
        elif op == SLOPE_ADD:
            work[p + f * to] += x * slope_of(function, work[r + f * tb])
        else:
            work[p + f * to] = two(op, x, work[r + f * tb])


@njit(**LOOP, fastmath=FAST)
def vector(op, here, y, x):
    """A function of slices; False where there is no loop for it."""
    zero = y.dtype.type(0)
    if here:
        if op == TANH:
            for f in range(len(y)):
                y[f] = hyperbolic(y[f])
        elif op == SIGMOID:
            for f in range(len(y)):
                y[f] = logistic(y[f])
        elif op == RELU:
            for f in range(len(y)):
                y[f] = zero if y[f] < zero else y[f]
        elif op == EXP:
            for f in range(len(y)):
                y[f] = math.exp(y[f])
        else:
            return False
    elif op == TANH:
        for f in range(len(y)):
            y[f] = hyperbolic(x[f])
    elif op == SIGMOID:
        for f in range(len(y)):
            y[f] = logistic(x[f])
    elif op == RELU:
        for f in range(len(y)):
            y[f] = zero if x[f] < zero else x[f]
    elif op == EXP:
        for f in range(len(y)):
            y[f] = math.exp(x[f])
    elif op == COPY:
        y[:] = x
    elif op == NEG:
        for f in range(len(y)):
            y[f] = -x[f]
    else:
        return False
    return True


@njit(**LOOP, fastmath=FAST)
def pairs(op, function, here, y, a, b):
    """A function of two slices; False where there is no loop for it."""
    if op == MULTIPLY_ADD:
        for f in range(len(y)):
            y[f] += a[f] * b[f]
    elif op in (SLOPE, SLOPE_ADD):
        return slopes(function, op == SLOPE_ADD, here, y, a, b)
    elif here and op == ADD:
        added(y, b)
    elif here and op == MUL:
        for f in range(len(y)):
            y[f] *= b[f]
    elif op == ADD:
        for f in range(len(y)):
            y[f] = a[f] + b[f]
    elif op == MUL:
        for f in range(len(y)):
            y[f] = a[f] * b[f]
    elif op == SUB:
        for f in range(len(y)):
            y[f] = a[f] - b[f]
    else:
        return False
    return True


@njit(**LOOP, fastmath=FAST)
def slopes(op, adds, here, y, a, b):
    """Gradients of functions of slices."""
    one_, zero = y.dtype.type(1), y.dtype.type(0)
    if adds:
        if op == TANH:
            for f in range(len(y)):
                y[f] += a[f] * (one_ - b[f] * b[f])
        elif op == SIGMOID:
            for f in range(len(y)):
                y[f] += a[f] * b[f] * (one_ - b[f])
        elif op == RELU:
            for f in range(len(y)):
                y[f] += a[f] if b[f] > zero else zero
        else:
            return False
    elif here:
        if op == TANH:
            for f in range(len(y)):
                y[f] *= one_ - b[f] * b[f]
        elif op == SIGMOID:
            for f in range(len(y)):
                y[f] *= b[f] * (one_ - b[f])
        elif op == RELU:
            for f in range(len(y)):
                y[f] = y[f] if b[f] > zero else zero
        else:
            return False
    elif op == TANH:
        for f in range(len(y)):
            y[f] = a[f] * (one_ - b[f] * b[f])
    elif op == SIGMOID:
        for f in range(len(y)):
            y[f] = a[f] * b[f] * (one_ - b[f])
    elif op == RELU:
        for f in range(len(y)):
            y[f] = a[f] if b[f] > zero else zero
    else:
        return False
    return True


@njit(**LOOP, fastmath=FAST)
def scaled(op, here, y, a, x):
    """A function of a slice and a number; False where there is no loop for it."""
    if op == MULTIPLY_ADD:
        for f in range(len(y)):
            y[f] += a[f] * x
    elif here and op == MUL:
        for f in range(len(y)):
            y[f] *= x
    elif here and op == ADD:
        for f in range(len(y)):
            y[f] += x
    elif op == MUL:
        for f in range(len(y)):
            y[f] = a[f] * x
    elif op == ADD:
        for f in range(len(y)):
            y[f] = a[f] + x
    else:
        return False
    return True


@njit(**LOOP, fastmath=FAST)
def added(y, x):
    for f in range(len(y)):
        y[f] += x[f]


@njit(**LOOP, fastmath=FAST)
def dotted(x, y):
    total = x.dtype.type(0)
    for f in range(len(x)):
        total += x[f] * y[f]
    return total
