"""`step.epoch(samples)` is a step for each sample, whatever changes between epochs."""

import pytest
import torch
from torch.nn.functional import mse_loss

import edgewise.epochs
from edgewise import F, Program, R, training_step
from edgewise.inputs.errors import BadInput

XOR = Program([(R.xor[1, 8] <= R.xy[8, 2]) | [F.tanh], R.xor / 0 | [F.tanh]])
X = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = torch.tensor([0.0, 1.0, 1.0, 0.0])
SAMPLES = [(None, y, {"xy": x}) for x, y in zip(X.split(1), Y.split(1), strict=True)]


@pytest.fixture(autouse=True, params=["tape", "compiled"])
def way(request, monkeypatch):
    """How epochs are computed."""
    if request.param == "compiled":
        monkeypatch.setattr(edgewise.epochs, "_taped", lambda *_: None)
    return request.param


def pair(make=lambda weights: torch.optim.SGD(weights, lr=0.1), loss=mse_loss):
    """Two equal models, each with its optimiser and step."""
    found = []
    for _ in range(2):
        model = XOR.compile(R.xor, seed=0)
        optimiser = make(model.parameters())
        found.append((model, optimiser, training_step(model, loss, optimiser)))
    return found


def plain(model, optimiser, loss=mse_loss):
    losses = []
    for _, y, inputs in SAMPLES:
        optimiser.zero_grad()
        value = loss(model(**inputs), y)
        value.backward()
        optimiser.step()
        losses.append(value.detach())
    return torch.stack(losses)


def assert_alike(one, two):
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a.grad, b.grad)


OPTIMISERS = {
    "sgd": lambda w: torch.optim.SGD(w, lr=0.1),
    "momentum": lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9),
    "weight decay": lambda w: torch.optim.SGD(w, lr=0.1, weight_decay=0.1),
    "adam": lambda w: torch.optim.Adam(w, lr=0.1),
    "adamw": lambda w: torch.optim.AdamW(w, lr=0.1, betas=(0.8, 0.9), maximize=True),
    "rmsprop": lambda w: torch.optim.RMSprop(w, lr=0.01),
    "two groups": lambda w: torch.optim.SGD([{"params": [p]} for p in w], lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_epoch_is_the_plain_loop(name, way):
    (one, _, step), (two, other, _) = pair(OPTIMISERS[name])
    epoch = step.epoch(SAMPLES)
    for _ in range(5):
        torch.testing.assert_close(epoch(), plain(two, other))
        assert_alike(one, two)
    assert (epoch._tape is not None) == (way == "tape" and name != "rmsprop")
    assert (epoch._ready is not None) == (way == "compiled" and name == "sgd")


def test_what_changes_between_epochs_is_seen():
    (one, mine, step), (two, other, _) = pair()
    epoch = step.epoch(SAMPLES)

    def compare(count=4):
        for _ in range(count):
            torch.testing.assert_close(epoch(), plain(two, other))
            assert_alike(one, two)

    compare()
    for optimiser in (mine, other):
        optimiser.param_groups[0]["lr"] = 0.02
    compare()
    for optimiser in (mine, other):
        optimiser.param_groups[0]["momentum"] = 0.5
    compare()
    for optimiser in (mine, other):
        optimiser.param_groups[0]["momentum"] = 0
    compare()
    for model in (one, two):
        next(model.parameters()).requires_grad_(False)
    epoch()
    plain(two, other)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_schedulers_and_hooks_are_called():
    (one, mine, step), (two, other, _) = pair()
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (mine, other)]
    calls = []
    mine.register_step_post_hook(lambda *_: calls.append(1))
    epoch = step.epoch(SAMPLES)
    for _ in range(5):
        torch.testing.assert_close(epoch(), plain(two, other))
        for schedule in schedules:
            schedule.step()
    assert len(calls) == 20
    assert_alike(one, two)


def test_weights_that_a_graph_needs_are_known_to_change(way):
    (model, _, step), _ = pair()
    epoch = step.epoch(SAMPLES)
    for _ in range(4):
        epoch()
    assert (epoch._tape if way == "tape" else epoch._ready) is not None
    out = model(xy=X[3:])
    epoch()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_loss_of_the_user_is_looked_at_every_time():
    factor = [1.0]

    def loss(output, target):
        return factor[0] * (output - target).square().mean()

    (one, _, step), (two, other, _) = pair(loss=loss)
    epoch = step.epoch(SAMPLES)
    for k in range(6):
        factor[0] = 1.0 if k < 4 else 3.0
        torch.testing.assert_close(epoch(), plain(two, other, loss))
    assert_alike(one, two)


def test_samples_that_change_in_place_are_read_again():
    (one, _, step), (two, other, _) = pair(OPTIMISERS["adam"])
    inputs = [(None, y.clone(), {"xy": x["xy"].clone()}) for _, y, x in SAMPLES]
    epoch = step.epoch(inputs)
    for k in range(6):
        if k == 3:
            inputs[1][1].add_(1)
        if k == 4:
            inputs[2][2]["xy"].mul_(0.5)
        losses = []
        for _, y, x in inputs:
            other.zero_grad()
            value = mse_loss(two(**x), y)
            value.backward()
            other.step()
            losses.append(value.detach())
        torch.testing.assert_close(epoch(), torch.stack(losses))
    assert_alike(one, two)


def test_the_state_of_the_optimiser_is_that_of_torch():
    (one, mine, step), (two, other, _) = pair(OPTIMISERS["adam"])
    epoch = step.epoch(SAMPLES)
    for _ in range(3):
        epoch()
        plain(two, other)
    step(None, SAMPLES[0][1], **SAMPLES[0][2])
    other.zero_grad()
    mse_loss(two(**SAMPLES[0][2]), SAMPLES[0][1]).backward()
    other.step()
    assert_alike(one, two)
    torch.testing.assert_close(mine.state_dict()["state"], other.state_dict()["state"])


@pytest.mark.parametrize("sample", [3, (), (torch.ones(1), torch.ones(1)), "ab"])
def test_a_sample_that_is_none(sample):
    (_, _, step), _ = pair()
    with pytest.raises(BadInput, match="expected a sample"):
        step.epoch([sample])
    assert step.epoch([])().shape == (0,)
