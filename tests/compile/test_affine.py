"""A matrix and the vector added to it are one product; those of one relation are one together."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from edgewise import F, Program, R, V, W

X, H, K = V.X, V.H, V.K
LINEAR = torch.nn.functional.linear


class Products(TorchFunctionMode):
    """Counts the linear maps of a run, by whether they add a vector."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is LINEAR:
            self.found.append(len(args) > 2 and args[2] is not None)
        return function(*args, **(kwargs or {}))


PROGRAMS = {
    "one": ([R.y(X) <= (R.x(X)["w":4, 3], W.b[4,])], [True]),
    "nested": ([R.y(X) <= F.tanh(R.x(X)["w":4, 3] + W.b[4,])], [True]),
    "several": (
        [
            R.q(X) <= (R.x(X)["w":4, 3], W.b[4,]),
            R.k(X) <= (R.x(X)["v":4, 3], W.c[4,]),
            R.y(X) <= R.q(X) + R.k(X),
        ],
        [True],
    ),
    "some": (
        [
            R.q(X) <= (R.x(X)["w":4, 3], W.b[4,]),
            R.k(X) <= R.x(X)["v":4, 3],
            R.y(X) <= R.q(X) + R.k(X),
        ],
        [True],
    ),
    "a family": (
        [
            R.q(H, X) <= (R.x(X)[W.w(H)[4, 3]], W.b(H)[4,]),
            (R.y(X) <= R.q(H, X)) | [F.concat_agg],
        ],
        [True],
    ),
    "a vector for all members": (
        [R.q(H, X) <= (R.x(X)[W.w(H)[4, 3]], W.b[4,]), (R.y(X) <= R.q(H, X)) | [F.concat_agg]],
        [False],
    ),
    "members on both sides of the rows": (
        [
            R.q(H, X, K) <= (R.x(X)[W.w(H, K)[4, 3]], W.b(H, K)[4,]),
            (R.y(X) <= R.q(H, X, K)) | [F.concat_agg],
        ],
        [True],
    ),
    "members on both sides, the last first": (
        [
            R.q(K, X, H) <= R.x(X)[W.w(H, K)[4, 3]],
            (R.y(X) <= R.q(K, X, H)) | [F.concat_agg],
        ],
        [False],
    ),
    "a family for a few rows": (
        [
            R.q(H, X) <= (R.x(X)[W.w(H)[4, 3]], W.b(H)[4,], R.special.lt(X, 2)),
            R.y(X) <= R.x(X)["v":4, 3],
            R.y(X) <= R.q(H, X),
        ],
        [False],
    ),
    "as many vectors as matrices": (
        [
            R.y(X) <= (R.x(X)["w":4, 3], W.b[4,], R.z(X)["v":4, 2], W.c[4,]),
            R.z(X) <= R.x(X)["z":2, 3],
        ],
        [True, True],
    ),
    "rows before a recursion": (
        [
            R.before(0) <= W.first[4,],
            R.before(X) <= (R.h(V.T), R.special.next(V.T, X)),
            (R.h(X) <= (R.x(X)["w":4, 3], W.b[4,], R.before(X)["v":4, 4], W.c[4,])) | [F.tanh],
            R.y(X) <= R.h(X),
        ],
        [True] * 6,  # one of all rows, and one for each step
    ),
    "rows that a recursion reads a step later": (
        [
            R.h(0) <= W.first[4,],
            (R.h(X) <= (R.x(V.T)["w":4, 3], R.h(V.T)["v":4, 4], R.special.next(V.T, X))) | [F.tanh],
            R.y(X) <= (R.h(X), R._x(X)),
        ],
        [False] * 6,
    ),
    "two vectors": (
        [
            R.q(X) <= (R.x(X)["w":4, 3], W.b[4,]),
            R.k(X) <= (R.x(X)["w":4, 3], W.c[4,]),
            R.y(X) <= R.q(X) + R.k(X)[2.0].fixed(),
        ],
        [True],
    ),
    "a number": ([R.y(X) <= (R.x(X)["w":4, 3], W.b[0.5])], [False]),
    "twice": ([R.y(X) <= (R.x(X)["w":4, 3], R.x(X)["v":4, 3], W.b[4,])], [True]),
    "gathered": (
        [(R.y(X) <= (R.x(V.Y)["w":4, 3], W.b[4,], R._edge(V.Y, X))) | [F.sum, F.avg_agg]],
        [True],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_gradients_and_the_number_of_products(name):
    rules, products = PROGRAMS[name]
    program = Program(rules, domains={H: 2, K: 3})
    # level by level: a scan is one loop, whose products are not calls of torch
    model = program.compile(R.y, seed=0, dtype=torch.float64, without=["scan levels"])
    x = torch.randn(5, 3, dtype=torch.float64)
    edges = [(a, b) for a in range(5) for b in range(5) if (a * b) % 3 != 1] * (
        "edge" in str(rules)
    )
    data = model.ground(edge=torch.tensor(edges).T) if edges else None
    model.rows(data, x=x)  # looks for shapes too
    with Products() as counted:
        computed = dict(model.rows(data, x=x))
    assert counted.found == products
    facts = [R.x(n)[row] for n, row in enumerate(x)] + [R.edge(a, b) for a, b in edges]
    weights = {name: model.weight(name) for name in model._paths}
    solution = dict(program.solve(facts, weights=weights)[R.y(X)])
    found, expected = (torch.stack([y[R.y(n)] for n in range(5)]) for y in (computed, solution))
    torch.testing.assert_close(found, expected)
    weight, leaves = torch.randn_like(found), list(model.parameters())
    ours, theirs = (torch.autograd.grad((y * weight).sum(), leaves) for y in (found, expected))
    torch.testing.assert_close(ours, theirs)
