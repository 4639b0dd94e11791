"""Instructions over one array of numbers: values and gradients of small networks, and updates.

A line of `code` is op, count, then start and step of out, a, b and c, and where its list begins in
`index`. A product has rows, inner and columns for counts, an aggregation rows and width.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

from numba import njit

PICK, PLACE, ADD_AT, MAX_AT, MIN_AT, PRODUCT, SUM, LARGEST, SMALLEST = range(9)
UNARY = (
    *("copy", "neg", "exp", "log", "sqrt", "reciprocal", "tanh", "sigmoid", "relu", "abs"),
    *("sign", "sin", "cos", "erf", "log1p", "logical_not"),
)
COPY, NEG, EXP, LOG, SQRT, RECIPROCAL, TANH, SIGMOID, RELU, ABS = range(9, 19)
SIGN, SIN, COS, ERF, LOG1P, NOT = range(19, 25)
BINARY = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne"),
    *("pow", "logical_and", "logical_or"),
)
ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, GT, GE, LT, LE, EQ, NE, POW, AND, OR, WHERE = range(25, 41)
OPS = {name: at for at, name in enumerate((*UNARY, *BINARY, "where"), COPY)}
WIDTH = 12  # of a line
NO_STEP, GRADIENT, ADAM = range(3)


@njit(nogil=True, cache=True)
def one(op, x):
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
        return 1.0 / (1.0 + math.exp(-x)) if x > -700 else math.exp(x)
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


@njit(nogil=True, cache=True)
def quotient(x, y):
    if y != 0:
        return x / y
    if x == 0 or x != x:
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


@njit(nogil=True, cache=True)
def two(op, x, y):
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


@njit(nogil=True, cache=True)
def power(x, y):
    if y == 2.0:
        return x * x
    if y == 1.0:
        return x
    if x == 0 and y < 0:
        return math.inf
    return math.nan if x < 0 and y != math.floor(y) else x**y


@njit(nogil=True, cache=True)
def run(code, first, last, index, work):
    """The instructions from `first` up to `last`."""
    for at in range(first, last):
        line = code[at]
        op, n, o, so, a, sa, b, sb = (
            line[0],
            line[1],
            line[2],
            line[3],
            line[4],
            line[5],
            line[6],
            line[7],
        )
        if op == MUL:
            for i in range(n):
                work[o + so * i] = work[a + sa * i] * work[b + sb * i]
        elif op == ADD:
            for i in range(n):
                work[o + so * i] = work[a + sa * i] + work[b + sb * i]
        elif op == PICK:
            ix = line[10]
            for i in range(n):
                work[o + i] = work[index[ix + i]]
        elif op == PLACE:
            ix = line[10]
            for i in range(n):
                work[index[ix + i]] = work[a + sa * i]
        elif op == ADD_AT:
            ix = line[10]
            for i in range(n):
                work[index[ix + i]] += work[a + sa * i]
        elif op in (MAX_AT, MIN_AT):
            ix, name = line[10], MAXIMUM if op == MAX_AT else MINIMUM
            for i in range(n):
                work[index[ix + i]] = two(name, work[index[ix + i]], work[a + sa * i])
        elif op == PRODUCT:
            product(line, work)
        elif op <= SMALLEST:
            reduced(line, work)
        elif op == WHERE:
            c, sc = line[8], line[9]
            for i in range(n):
                work[o + so * i] = work[b + sb * i] if work[a + sa * i] != 0 else work[c + sc * i]
        elif op < ADD:
            for i in range(n):
                work[o + so * i] = one(op, work[a + sa * i])
        else:
            for i in range(n):
                work[o + so * i] = two(op, work[a + sa * i], work[b + sb * i])


@njit(nogil=True, cache=True)
def product(line, work):
    rows, o, columns, a, a_row, b, b_row = (
        line[1],
        line[2],
        line[3],
        line[4],
        line[5],
        line[6],
        line[7],
    )
    inner, a_column, b_column = line[8], line[9], line[10]
    for i in range(rows):
        for j in range(columns):
            total = 0.0
            p, q = a + i * a_row, b + j * b_column
            for k in range(inner):
                total += work[p + k * a_column] * work[q + k * b_row]
            work[o + i * columns + j] = total


@njit(nogil=True, cache=True)
def reduced(line, work):
    """An aggregation of each of `rows` groups of `width` numbers."""
    op, rows, o, width, a, a_row, a_column = (
        line[0],
        line[1],
        line[2],
        line[3],
        line[4],
        line[5],
        line[6],
    )
    for i in range(rows):
        start = a + i * a_row
        if op == SUM:
            total = 0.0
            for k in range(width):
                total += work[start + k * a_column]
        else:
            total = work[start]
            for k in range(1, width):
                x = work[start + k * a_column]
                if x != x or (x > total if op == LARGEST else x < total):
                    total = x
        work[o + i] = total


@njit(nogil=True, cache=True)
def train(code, bounds, index, work, parts, part_bounds, rates, kind, options, moments, counts):
    """Updates for each sample in order, for as many epochs as there are rates.

    `parts` are start of a weight, its length, where its gradient begins and its number; `moments`
    and `counts` are those of Adam; `options` are weight decay, betas, epsilon and two bounds of
    gradients, each below 0 if there is none.
    """
    for epoch in range(len(rates)):
        for sample in range(len(bounds) - 1):
            run(code, bounds[sample], bounds[sample + 1], index, work)
            mine = parts[part_bounds[sample] : part_bounds[sample + 1]]
            if kind == NO_STEP:
                continue
            clip(mine, work, options[4], options[5])
            for w, n, g, number in mine:
                counts[number] += 1
                if kind == GRADIENT:
                    for i in range(n):
                        work[w + i] -= rates[epoch] * (work[g + i] + options[0] * work[w + i])
                else:
                    adam(work, moments, w, n, g, rates[epoch], counts[number], options)


@njit(nogil=True, cache=True)
def clip(parts, work, most, norm):
    if most >= 0:
        for _, n, g, _ in parts:
            for i in range(g, g + n):
                work[i] = min(max(work[i], -most), most)
    if norm >= 0:
        total = 0.0
        for _, n, g, _ in parts:
            for i in range(g, g + n):
                total += work[i] * work[i]
        scale = norm / (math.sqrt(total) + 1e-6)
        if scale < 1:
            for _, n, g, _ in parts:
                for i in range(g, g + n):
                    work[i] *= scale


@njit(nogil=True, cache=True)
def adam(work, moments, w, n, g, rate, count, options):
    decay, beta, gamma, epsilon = options[0], options[1], options[2], options[3]
    size = rate / (1 - beta**count)
    root = math.sqrt(1 - gamma**count)
    for i in range(n):
        x = work[g + i] + decay * work[w + i]
        first = moments[0, w + i] + (x - moments[0, w + i]) * (1 - beta)
        second = moments[1, w + i] * gamma + (1 - gamma) * x * x
        moments[0, w + i], moments[1, w + i] = first, second
        work[w + i] -= size * first / (math.sqrt(second) / root + epsilon)
