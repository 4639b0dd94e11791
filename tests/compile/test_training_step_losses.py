"""What a compiled `training_step` depends on is read again, or its call is the plain loop."""

import pytest
import torch
from torch.nn import Parameter
from torch.utils.flop_counter import FlopCounterMode

from edgewise import F, Program, R, V, training_step
from tests.compile.test_training_step import XOR, mse, plain_step, same

X = V.X
LINEAR = Program([R.h(X) <= R.x(X)["w":2, 2]])
TWO = Program([(R.h(X) <= R.x(X)["a":2, 2]) | [F.tanh], R.out(X) <= R.h(X)["b":2, 2]])


@pytest.fixture(autouse=True)
def traced_only(monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)


def pair(program, output, loss, prepare=lambda model: None):
    """The same step compiled and plain, and their models."""
    models = [program.compile(output, seed=0, dtype=torch.float64) for _ in range(2)]
    for model in models:
        prepare(model)
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    losses = loss if isinstance(loss, list) else [loss, loss]
    fast = training_step(models[0], losses[0], optimisers[0])
    return models, (fast, plain_step(models[1], losses[1], optimisers[1]))


def run(models, steps, x, y, times=4):
    for _ in range(times):
        torch.testing.assert_close(*(step(None, y, x=x) for step in steps))
    found, wanted = ([p.grad for p in model.parameters()] for model in models)
    torch.testing.assert_close(found, wanted)
    same(*models)


def rows(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


def test_tensors_that_a_loss_reads_may_be_replaced_and_written_into():
    held = {"scale": torch.ones(2, dtype=torch.float64)}

    def loss(y, t):
        return ((y - t).square() * held["scale"]).mean()

    models, steps = pair(LINEAR, R.h, loss)
    run(models, steps, rows(3, 2), rows(3, 2, seed=1))
    assert steps[0].plain is None
    held["scale"].mul_(2)
    run(models, steps, rows(3, 2), rows(3, 2, seed=1), 1)
    assert steps[0].plain is None
    held["scale"] = torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64)[1:]
    run(models, steps, rows(3, 2), rows(3, 2, seed=1), 1)
    assert steps[0].plain is None


def test_a_loss_may_be_a_module_and_hold_constants():
    class Weighted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor([1.0, 2.0], dtype=torch.float64))

        def forward(self, y, t):
            limits = torch.tensor([0.5, 0.25], dtype=torch.float64)
            return ((y - t).square() * self.scale).maximum(limits).sum()

    losses = [Weighted(), Weighted()]
    models, steps = pair(LINEAR, R.h, losses)
    run(models, steps, rows(3, 2), rows(3, 2, seed=1))
    assert steps[0].plain is None
    for loss in losses:
        loss.scale.mul_(3)
    run(models, steps, rows(3, 2), rows(3, 2, seed=1), 1)
    assert steps[0].plain is None


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda y, t: mse(y.mul_(2), t), None),
        (lambda y, t: mse(y, t.add_(0.25)), "the loss writes into what it reads"),
        (lambda y, t: y.sum() if y.is_leaf else mse(y, t), None),
    ],
    ids=["output", "target", "leaf"],
)
def test_losses_that_write_or_look_at_the_graph(loss, reason):
    models, steps = pair(LINEAR, R.h, loss)
    x, targets = rows(3, 2), (rows(3, 2, seed=1), rows(3, 2, seed=1))
    for _ in range(4):
        found = [step(None, y, x=x) for step, y in zip(steps, targets, strict=True)]
        torch.testing.assert_close(*found)
    torch.testing.assert_close(*targets)
    same(*models)
    assert steps[0].plain == reason


def test_losses_with_weights_or_stored_tensors_are_plain():
    stored = ([], [])

    def storing(at):
        def loss(y, t):
            value = mse(y, t)
            stored[at].append(value.detach())
            return value

        return loss

    models, steps = pair(LINEAR, R.h, [storing(0), storing(1)])
    run(models, steps, rows(3, 2), rows(3, 2, seed=1))
    assert steps[0].plain == "the loss stores tensors"
    torch.testing.assert_close(torch.stack(stored[0]), torch.stack(stored[1]))
    temperature = [Parameter(torch.ones((), dtype=torch.float64)) for _ in range(2)]
    losses = [lambda y, t, at=at: mse(y * temperature[at], t) for at in range(2)]
    models, steps = pair(LINEAR, R.h, losses)
    run(models, steps, rows(3, 2), rows(3, 2, seed=1), 2)
    for parameter in temperature:
        parameter.grad = None
    run(models, steps, rows(3, 2), rows(3, 2, seed=1))
    assert "weights of its own" in steps[0].plain
    torch.testing.assert_close(temperature[0].grad, temperature[1].grad)


def test_inputs_and_weights_with_other_strides():
    models, steps = pair(LINEAR, R.h, mse)
    run(models, steps, rows(2, 2), rows(2, 2, seed=1))
    run(models, steps, rows(2, 2).T, rows(2, 2, seed=1).T)
    for model in models:
        model.w.data = model.w.data.T
    run(models, steps, rows(2, 2), rows(2, 2, seed=1))
    assert steps[0].plain is None


def test_one_weight_under_two_names():
    def tie(model):
        model.b = model.a

    models, steps = pair(TWO, R.out, mse, tie)
    run(models, steps, rows(3, 2), rows(3, 2, seed=1))
    assert "optimiser's parameters" in steps[0].plain


def test_gradients_of_earlier_steps_stay():
    models, steps = pair(LINEAR, R.h, mse)
    x, y = rows(3, 2), rows(3, 2, seed=1)
    found = []
    for _ in range(5):
        for step in steps:
            step(None, y, x=x)
        found.append([model.w.grad for model in models])
    assert steps[0].plain is None
    for one, other in found:
        torch.testing.assert_close(one, other)


def test_weights_that_the_loss_does_not_reach_have_no_gradient():
    models, steps = pair(XOR, R.xor, lambda y, t: mse(y, t).detach() + y.sum() * 0)
    for _ in range(4):
        for step in steps:
            step(None, torch.ones(1, dtype=torch.float64), xy=rows(1, 2))
    assert steps[0].plain is None
    same(*models)


def test_modes_that_see_single_operations():
    models, steps = pair(LINEAR, R.h, mse)
    x, y = rows(3, 2), rows(3, 2, seed=1)
    run(models, steps, x, y)
    assert steps[0].plain is None
    with FlopCounterMode(display=False) as counter:
        steps[0](None, y, x=x)
    assert "dispatch mode" in steps[0].plain
    assert counter.get_total_flops() == 2 * 2 * 3 * 2 * 2  # forward, and the gradient of `w`
    nan = torch.full((3, 2), float("nan"), dtype=torch.float64)
    with (
        pytest.warns(UserWarning, match="(?s)Error detected|Anomaly"),
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="nan values"),
    ):
        steps[0](None, y, x=nan)


def test_values_that_a_loss_refuses_are_reported_by_torch():
    program = Program([R.h(X) <= R.x(X)["w":4, 2]])
    models, steps = pair(program, R.h, torch.nn.functional.cross_entropy)
    run(models, steps, rows(3, 2), torch.tensor([0, 1, 3]))
    assert steps[0].plain is None
    with pytest.raises(IndexError, match="out of bounds"):
        steps[0](None, torch.tensor([0, 1, 7]), x=rows(3, 2))
    steps[0](None, torch.tensor([0, 1, 2]), x=rows(3, 2))
    assert steps[0].plain is None


def test_without_dynamo_the_loop_is_plain():
    models, steps = pair(LINEAR, R.h, mse)
    with torch.compiler.set_stance("force_eager"):
        run(models, steps, rows(3, 2), rows(3, 2, seed=1))
    assert "not a graph" in steps[0].plain
