"""Epochs of updates: the steps of each sample, then gradient descent or Adam.

`parts` are start of a weight, its length, where its gradient begins and its number. A row of
`options` is of one weight: weight decay, then momentum, dampening and whether it is Nesterov's, or
betas, epsilon and whether decay is decoupled; then the sign of gradients. `moments` are momentum,
or both of Adam. `bounds` of elements and norm of gradients are below 0 if there is none.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

import math

from numba import njit

from edgewise.kernels.tape.numba_functions import call_at, part
from edgewise.kernels.tape.numba_loops import run

NO_STEP, GRADIENT, ADAM = range(3)


@njit(nogil=True, cache=True)
def train(tape, functions, work, parts, starts, kind, rates, options, bounds, moments, counts):
    """Updates for each sample in order, an epoch for each row of rates: one rate a weight.
    `starts` are where the steps and parts of each sample begin; `functions` compute them, if there
    are any."""
    code, steps, index = tape
    flat, width = options.reshape(-1), options.shape[1]
    # powers of the betas for updates number `known`: the next ones are a product each
    known, beta, gamma, first_power, second_power = -1, 0.0, 0.0, 1.0, 1.0
    for epoch in range(len(rates)):
        for sample in range(len(starts) - 1):
            if len(functions):
                call_at(functions[sample], work)
            else:
                run(code, steps, starts[sample, 0], starts[sample + 1, 0], index, work)
            if kind == NO_STEP:
                continue
            first, last = starts[sample, 1], starts[sample + 1, 1]
            if bounds[0] >= 0 or bounds[1] >= 0:
                clip(parts[first:last], work, bounds[0], bounds[1])
            for at in range(first, last):
                w, n, g, number = parts[at, 0], parts[at, 1], parts[at, 2], parts[at, 3]
                counts[number] += 1
                rate, own = rates[epoch, number], part(flat, number * width, width)
                if kind == GRADIENT:
                    descend(work, moments, w, n, g, rate, counts[number], own)
                    continue
                count, same = counts[number], own[1] == beta and own[2] == gamma
                if same and count == known + 1:
                    first_power, second_power = first_power * beta, second_power * gamma
                elif not same or count != known:
                    beta, gamma = own[1], own[2]
                    first_power, second_power = beta**count, gamma**count
                known = count
                size, root = 1 - first_power, math.sqrt(1 - second_power)
                adam(work, moments, w, n, g, rate, size, root, own)


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
def descend(work, moments, w, n, g, rate, count, own):
    decay, momentum, dampening, nesterov, sign = own[0], own[1], own[2], own[3], own[4]
    if momentum == 0 and decay == 0:
        for i in range(n):
            work[w + i] -= rate * (sign * work[g + i])
        return
    for i in range(n):
        x = sign * work[g + i] + decay * work[w + i]
        if momentum != 0:
            held = x if count == 1 else momentum * moments[0, w + i] + (1 - dampening) * x
            moments[0, w + i] = held
            x = x + momentum * held if nesterov != 0 else held
        work[w + i] -= rate * x


@njit(nogil=True, cache=True)
def adam(work, moments, w, n, g, rate, size, root, own):
    decay, beta, gamma, epsilon, sign, decoupled = own[0], own[1], own[2], own[3], own[4], own[5]
    size = rate / size
    for i in range(n):
        x = sign * work[g + i]
        if decoupled != 0:
            work[w + i] *= 1 - rate * decay
        else:
            x += decay * work[w + i]
        first = moments[0, w + i] + (x - moments[0, w + i]) * (1 - beta)
        second = moments[1, w + i] * gamma + (1 - gamma) * x * x
        moments[0, w + i], moments[1, w + i] = first, second
        work[w + i] -= size * first / (math.sqrt(second) / root + epsilon)
