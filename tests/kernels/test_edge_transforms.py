"""Transforms of `torch.func` through operations along edges."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V
from edgewise.kernels.edges import (
    edge_index,
    grouped_linear,
    grouping,
    segment_extreme,
    segment_sum,
)

INDEX = edge_index(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([3, 0, 1, 1, 2]), 3, 4)
GROUPS = grouping(torch.tensor([0, 1, 1, 0]), 2)
FAMILY = torch.randn(2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
OPERATIONS = {
    "sum": lambda x: segment_sum(x, INDEX),
    "scaled sum": lambda x: segment_sum(x, INDEX, x[:, 0].repeat(2)[:5]),
    "max": lambda x: segment_extreme(x, INDEX, largest=True),
    "grouped linear": lambda x: grouped_linear(x, FAMILY * x.sum(), GROUPS),
}


def rows():
    return torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", OPERATIONS)
def test_jacobians_and_batches(name):
    f, x = OPERATIONS[name], rows()
    torch.testing.assert_close(torch.func.jacrev(f)(x), torch.autograd.functional.jacobian(f, x))
    batch = torch.stack([x, 2 * x, x - 1], 1)
    each = torch.stack([f(row) for row in batch.unbind(1)], 2)
    torch.testing.assert_close(torch.vmap(f, in_dims=1, out_dims=2)(batch), each)

    def loss(x):
        return f(x).square().sum()

    gradients = [torch.func.grad(loss)(row) for row in batch.unbind(1)]
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(loss), in_dims=1)(batch), torch.stack(gradients)
    )
    second = torch.autograd.functional.hessian(loss, x)
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(loss))(x), second)


@pytest.mark.parametrize("name", OPERATIONS)
def test_forward_mode_is_refused(name):
    x = rows()
    with pytest.raises(EdgewiseError, match="no forward-mode derivative") as found:
        torch.func.jvp(OPERATIONS[name], (x,), (x,))
    assert found.value.code == "no-transform"


def test_the_jacobian_of_a_model():
    rules = [(R.h(V.X) <= (R.x(V.Y)["w":2, 2], R._edge(V.Y, V.X))) | [F.avg_agg]]
    model = Program(rules).compile(R.h, seed=0, dtype=torch.float64)
    data = model.ground(edge=torch.tensor([[0, 1, 2, 3, 0], [1, 2, 0, 0, 3]]))

    def f(x):
        return torch.stack(list(dict(model.rows(data, x=x)).values()))

    x = rows()
    torch.testing.assert_close(torch.func.jacrev(f)(x), torch.autograd.functional.jacobian(f, x))
