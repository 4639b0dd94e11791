"""`F.batch_norm`: `torch.nn.BatchNorm1d` over all rows of a batch, with running averages."""

import copy

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W
from edgewise.inputs.kinds import ragged, rows

D = 3
AVERAGES = W.mean[D,].filled(0.0).fixed(), W.variance[D,].filled(1.0).fixed()
NORM = F.batch_norm(eps=1e-5)(R.h(V.I), *AVERAGES)
PROGRAM = Program(
    [
        R.h(V.I) <= R.x(V.I)["w":D, 2],
        R.y(V.I) <= NORM * W.gain[D,].filled(1.0) + W.bias[D,].filled(0.0),
        R.z(V.I) <= (R.y(V.J), R._edge(V.I, V.J)),
        (R.total <= R.z(V.I)) | [F.avg_agg],
    ]
)


def theirs(model):
    linear, norm = torch.nn.Linear(2, D, bias=False), torch.nn.BatchNorm1d(D)
    both = torch.nn.Sequential(linear, norm).double()
    with torch.no_grad():
        linear.weight.copy_(model.weight("w"))
    return both


def draw(n, seed=0):
    return torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_values_gradients_and_averages_are_those_of_torch():
    model = PROGRAM.compile(R.y, seed=0, dtype=torch.float64)
    other = theirs(model)
    for step in range(3):
        x = draw(5, step)
        for one in (model, other):
            one.zero_grad()
        ours, their = model(x=x), other(x)
        torch.testing.assert_close(ours, their)
        ours.square().sum().backward()
        their.square().sum().backward()
        torch.testing.assert_close(model.w.grad, other[0].weight.grad)
        torch.testing.assert_close(model.gain.grad, other[1].weight.grad)
        torch.testing.assert_close(model.mean, other[1].running_mean, check_dtype=False)
        torch.testing.assert_close(model.variance, other[1].running_var, check_dtype=False)
    model.eval(), other.eval()
    torch.testing.assert_close(model(x=draw(1)), other(draw(1)))


def test_statistics_are_of_all_samples_of_a_batch():
    model = PROGRAM.compile(R.total, seed=0, dtype=torch.float64)
    other = theirs(model)
    xs = [draw(3), draw(5, 1)]
    edges = [rows(torch.tensor([[0, 1, 2], [1, 2, 0]])), rows(torch.tensor([[0, 4], [1, 1]]))]
    found = model(model.ground(x=ragged(xs), edge=ragged(edges)))
    first, second = other(torch.cat(xs)).split([3, 5])
    expected = torch.stack([first[[1, 2, 0]].mean(0), second[[1, 1]].mean(0)])
    torch.testing.assert_close(found.data, expected)
    torch.testing.assert_close(model.mean, other[1].running_mean, check_dtype=False)


def test_evaluation_is_that_of_the_reference():
    model = PROGRAM.compile(R.total, seed=0, dtype=torch.float64)
    edge = rows(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    model(model.ground(x=draw(3), edge=edge))
    model.eval()
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    facts = [R.x(i)[row] for i, row in enumerate(draw(3, 1))]
    facts += [R.edge(i, j) for i, j in edge.keys.T.tolist()]
    expected = PROGRAM.solve(facts, weights=weights)[R.total]
    torch.testing.assert_close(model(model.ground(x=draw(3, 1), edge=edge)), expected)


def test_equal_rows_count_each():
    model = PROGRAM.compile(R.y, seed=0, dtype=torch.float64)
    x = draw(3)[[0, 0, 0, 1, 2]]
    other = theirs(model)
    torch.testing.assert_close(model(model.ground(x=x)), other(x))


def test_a_copy_compiled_by_torch_moves_its_averages():
    model = PROGRAM.compile(R.y, seed=0)
    copied = copy.deepcopy(model)
    fast = torch.compile(copied, backend="aot_eager")
    x = draw(6).float()
    torch.testing.assert_close(fast(x=x), model(x=x))
    torch.testing.assert_close(copied.mean, model.mean)
    assert float(model.mean.abs().sum()) > 0


def test_momentum_is_the_share_of_the_batch():
    norm = F.batch_norm(momentum=0.25)(R.x(V.I), W.mean[0.0].fixed(), W.variance[1.0].fixed())
    model = Program([R.y(V.I) <= norm]).compile(R.y)
    model(x=torch.tensor([[1.0], [3.0]]))
    assert model.mean.item() == pytest.approx(0.5)
    assert model.variance.item() == pytest.approx(0.75 + 0.25 * 2)


@pytest.mark.parametrize("averages", [(R.m, R.v), (W.m[D,], W.v[D,]), (W.m(V.I)[D,], W.v[D,])])
def test_averages_are_fixed_weights(averages):
    with pytest.raises(EdgewiseError) as caught:
        Program([R.y(V.I) <= F.batch_norm(R.x(V.I), *averages)]).check()
    assert "bad-averages" in str(caught.value)
