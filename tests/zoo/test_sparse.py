"""The Sparse Transformer as rules against plain torch, written from the paper's equations."""

import math

import pytest
import torch
from gradients import assert_equal_with_gradients
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as f

from edgewise import R, numbers
from edgewise.zoo import sparse


def mask_of(n: int, step: int, kind: str, width: int, far: bool) -> torch.Tensor:
    """A⁽¹⁾ and A⁽²⁾ of section 4 of the paper, as masks."""
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    if kind == "strided":
        half = (i - j) % step == 0 if far else i - j <= step
    else:
        half = j % step >= step - width if far else i // step == j // step
    return half & (j <= i)


def written(config: sparse.Config, weights: dict, token: torch.Tensor) -> torch.Tensor:
    n, d = token.shape[1], config.size // config.heads
    x = weights["word"][token] + weights["position"][:n]
    for k in range(config.layers):
        half = f"layer.{k}"
        w = {m.removeprefix(f"{half}."): t for m, t in weights.items() if m.startswith(half)}
        mask = mask_of(n, config.step, config.kind, config.width, k % 2 == 1)
        z = f.layer_norm(x, (config.size,), w["norm1.gain"], w["norm1.bias"], config.eps)
        q, key, v = (
            torch.einsum("bne,hde->bhnd", z, w[f"{a}.weight"]) + w[f"{a}.bias"][:, None]
            for a in "qkv"
        )
        scores = (q @ key.mT / math.sqrt(d)).masked_fill(~mask, -torch.inf)
        # in the fixed pattern's far half the first tokens attend to nothing and are unchanged
        found = torch.nan_to_num(scores.softmax(-1)) @ v
        mixed = found.transpose(1, 2).flatten(2) @ w["attended.weight"].T + w["attended.bias"]
        some = mask.any(1)[None, :, None]
        x = torch.where(some, x + mixed, x) if k % 2 else x + mixed
        z = f.layer_norm(x, (config.size,), w["norm2.gain"], w["norm2.bias"], config.eps)
        hidden = f.gelu(z @ w["mlp.weight"].T + w["mlp.bias"])
        x = x + hidden @ w["out.weight"].T + w["out.bias"]
    x = f.layer_norm(x, (config.size,), weights["out.gain"], weights["out.bias"], config.eps)
    return x @ weights["word"].T


@settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(st.integers(1, 13), st.integers(1, 4), st.sampled_from([2, 4]), st.integers(1, 3))
def test_strided_is_the_paper_s(n, step, layers, heads):
    _assert_equal(n, sparse.Config(9, 2 * heads, heads, 5, layers, 16, dropout=0.0, step=step))


@pytest.mark.parametrize(("n", "step", "width"), [(1, 1, 1), (9, 3, 1), (10, 4, 2), (7, 3, 3)])
def test_fixed_is_the_paper_s(n, step, width):
    config = sparse.Config(
        9, 4, 2, 5, 2, 16, dropout=0.0, step=step, kind="fixed", width=width
    )  # fmt: skip
    _assert_equal(n, config)


def _assert_equal(n: int, config: sparse.Config) -> None:
    torch.manual_seed(n)
    model = sparse.program(config).compile(R.logits, seed=0, dtype=torch.float64)
    weights = {name: model.weight(name) for name in sparse.program(config).weights()}
    token = torch.randint(0, 9, (2, n))
    ours, theirs = model(token=numbers(token)), written(config, weights, token)
    assert_equal_with_gradients(model, ours, theirs)
    found = model.explain(json=True, stage="passes", token=numbers(token))
    assert not found["passes"]["not fused"]
