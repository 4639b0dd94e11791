"""The importance of heads: the gradient of a gate, and the loss without each one."""

import math

import pytest
import torch

from edgewise import EdgewiseError, R
from edgewise.pruning import HeadImportance, importance
from edgewise.pruning.head_importance import without_head
from edgewise.pruning.layers import head_layers
from tests.pruning.test_prune import MODELS, double, rules


def sample(n, seed):
    return {"x": torch.randn(n, 5, dtype=torch.float64, generator=torch.manual_seed(seed))}


SAMPLES = [sample(4, 0), sample(3, 1)]


def loss(y):
    return y.sin().square().mean()


def model():
    return rules().compile(R.y, seed=0, dtype=torch.float64)


def test_the_gradient_is_that_of_a_gate():
    found = importance(model(), SAMPLES, loss=loss)
    full = model()
    (layer,) = head_layers(full.program)
    expected = torch.zeros(4, dtype=torch.float64)
    for inputs in SAMPLES:
        gates = torch.ones(4, 1, 1, dtype=torch.float64, requires_grad=True)
        gated = {"v": full.weight("v").detach() * gates}
        output = torch.func.functional_call(full, gated, (), inputs)
        (gradient,) = torch.autograd.grad(loss(output), gates)
        expected += gradient.flatten().abs() / len(SAMPLES)
    torch.testing.assert_close(torch.tensor(found.scores[0]).double(), expected, rtol=1e-5, atol=0)
    assert layer.values == (("v", 0),)


def test_ablation_is_the_loss_without_a_head():
    full = model()
    found = importance(full, SAMPLES, loss=loss, method="ablation")
    (layer,) = head_layers(full.program)
    every = sum(loss(full(**s)).item() for s in SAMPLES) / 2
    assert math.isclose(found.loss, every)
    for head in range(4):
        with without_head(full, layer, head):
            alone = sum(loss(full(**s)).item() for s in SAMPLES) / 2
        assert math.isclose(found.scores[0][head], alone - every, abs_tol=1e-12)
    assert math.isclose(sum(loss(full(**s)).item() for s in SAMPLES) / 2, every)


def test_grouped_heads_share_a_score():
    program, output, inputs = MODELS["llama"]
    full = program.compile(output, seed=0, dtype=torch.float64)
    found = importance(full, [inputs], loss=lambda y: y.sin().mean())
    assert all(row[0] == row[1] and row[2] == row[3] for row in found.scores)
    assert all(len(heads) % 2 == 0 for heads in found.least(keep=0.5).values())


@pytest.mark.parametrize(("keep", "gone"), [(1.0, 0), (0.75, 2), (0.5, 4), (0.01, 7), (1e-9, 7)])
def test_the_least_important_go(keep, gone):
    found = HeadImportance(((0.1, 0.9, 0.8, 0.2), (0.3, 0.7, 0.6, 0.4)), (1, 1), 1.0, "gradient")
    heads = found.least(keep=keep)
    assert sum(map(len, heads.values())) == gone
    if gone == 4:
        assert heads == {0: [0, 3], 1: [0, 3]}


def test_it_prints_a_table():
    text = repr(importance(model(), SAMPLES, loss=loss))
    assert text.splitlines()[0].startswith("importance by gradient")
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (SAMPLES, {"loss": lambda y: y.sum() / 0 - y.sum() / 0}),
        (SAMPLES, {"loss": lambda y: y}),
        (SAMPLES, {"loss": lambda y: 1.0}),
        (SAMPLES, {"loss": lambda y: torch.tensor(1.0)}),
        (SAMPLES, {}),
        (SAMPLES, {"loss": loss, "method": "magic"}),
        ([], {"loss": loss}),
        (SAMPLES[0], {"loss": loss}),
        (["a text"], {"loss": loss}),
    ],
)
def test_bad_input(data, options):
    with pytest.raises(EdgewiseError) as found:
        importance(model(), data, **options)
    assert found.value.code == "bad-importance"


@pytest.mark.parametrize("keep", [0, -1, 1.5, "half", True, float("nan")])
def test_a_share_is_between_0_and_1(keep):
    with pytest.raises(EdgewiseError) as found:
        importance(model(), SAMPLES, loss=loss).least(keep=keep)
    assert found.value.code == "bad-importance"


def test_nothing_is_changed():
    full = model().train()
    before = {name: p.clone() for name, p in full.named_parameters()}
    for method in ("gradient", "ablation"):
        importance(full, [{"x": double(3, 5)}], loss=loss, method=method)
    assert full.training
    assert all(
        torch.equal(p, before[name]) and p.grad is None for name, p in full.named_parameters()
    )
