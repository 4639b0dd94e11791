"""The RNN encoder–decoder is `torch.nn.GRU` and Luong's equations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, R, numbers
from edgewise.zoo import rnn

GATES = ("reset", "update", "new")  # in the order of torch


def unit(model, name, size):
    """The GRU of torch with the weights of a model."""
    made = torch.nn.GRU(size, size, batch_first=True).to(model.weight("source_word").dtype)

    def stacked(part):
        return torch.cat([model.weight(f"{name}.{gate}.{part}") for gate in GATES])

    parts = {"weight_ih": "in", "bias_ih": "in_bias", "weight_hh": "back", "bias_hh": "back_bias"}
    leaves = {f"{theirs}_l0": stacked(ours) for theirs, ours in parts.items()}
    return lambda *inputs: torch.func.functional_call(made, leaves, inputs)


def plain(model, config, source, lengths, target):
    w = model.weight
    x, y = w("source_word")[source], w("target_word")[target]
    h, _ = unit(model, "h", config.size)(x)
    last = h[torch.arange(len(h)), lengths - 1]
    s, _ = unit(model, "s", config.size)(y, last[None])
    out = s
    if config.attention != "none":
        match config.attention:
            case "dot":
                scores = s @ h.mT
            case "general":
                scores = (s @ w("score.A").T) @ h.mT
            case "concat":
                bent = (s @ w("score.A").T)[:, :, None] + (h @ w("score.B").T)[:, None]
                scores = bent.tanh() @ w("score.v")[0]
        there = torch.arange(h.shape[1]) < lengths[:, None]
        weights = scores.masked_fill(~there[:, None], -torch.inf).softmax(-1)
        out = torch.tanh(weights @ h @ w("out.context").T + s @ w("out.state").T)
    return out @ w("logits.weight").T + w("logits.bias")


@settings(max_examples=6)
@given(st.sampled_from(rnn.SCORES), st.integers(1, 7), st.integers(1, 6), st.integers(0, 99))
def test_rnn_is_the_gru_of_torch_with_luong_s_attention(attention, n, m, seed):
    torch.manual_seed(seed)
    config = rnn.Config(11, 13, 6, attention, dropout=0.0)
    model = rnn.program(config).compile(R.logits, seed=seed, dtype=torch.float64)
    source, target = torch.randint(0, 11, (3, n)), torch.randint(0, 13, (3, m))
    lengths = torch.randint(1, n + 1, (3,))
    places = torch.arange(n)
    inputs = {
        "source": numbers(source),
        "target": numbers(target),
        "end": (places == lengths[:, None] - 1).double()[..., None],
    }
    if attention != "none":
        inputs["mask"] = (places < lengths[:, None]).double()[..., None]
    found, expected = model(**inputs), plain(model, config, source, lengths, target)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    leaves = list(model.parameters())
    ours = torch.autograd.grad(found.square().sum(), leaves, allow_unused=True)
    theirs = torch.autograd.grad(expected.square().sum(), leaves, allow_unused=True)
    for leaf, a, b in zip(leaves, ours, theirs, strict=True):
        a, b = (torch.zeros_like(leaf) if g is None else g for g in (a, b))
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("attention", ["dots", "", None])
def test_an_unknown_score_is_an_error(attention):
    with pytest.raises(EdgewiseError, match="is not one of"):
        rnn.Config(attention=attention)


@pytest.mark.parametrize("attention", ["dot", "general"])
def test_attention_over_states_is_one_node(attention):
    model = rnn.program(rnn.Config(11, 13, 6, attention)).compile(R.logits, seed=0)
    tokens, ones = numbers(torch.zeros(2, 5, dtype=torch.long)), torch.ones(2, 5, 1)
    shown = str(model.explain(source=tokens, target=tokens, end=ones, mask=ones))
    assert "attention (dense, 1 call without padding)" in shown
    assert "not one attention" not in shown
