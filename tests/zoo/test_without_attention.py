"""Models that mix rows without attention, against their equations in plain torch."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as f

from edgewise import EdgewiseError, R, V
from edgewise.graphs import full, window
from edgewise.zoo import convolution, convs2s, mixing

few = settings(max_examples=8, phases=[Phase.explicit, Phase.generate])


def normed(x, w, name):
    return f.layer_norm(x, x.shape[-1:], w(f"{name}.gain"), w(f"{name}.bias"))


def affine(x, w, name):
    return x @ w(f"{name}.weight").T + w(f"{name}.bias")


def compare(program, plain, x):
    """Outputs and gradients of all weights."""
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    found, expected = model(x=x), plain(model.weight)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    leaves = [p for p in model.parameters() if p.requires_grad]
    ours = torch.autograd.grad(found.square().sum(), leaves)
    theirs = torch.autograd.grad(expected.square().sum(), leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def after(x, mixed, w, at):
    """The residual and the feed-forward sublayer that models share."""
    mid = x + mixed
    inner = torch.relu(affine(normed(mid, w, f"{at}norm2"), w, f"{at}mlp"))
    return mid + affine(inner, w, f"{at}out")


def mixed(w, config, x, near):
    for k in range(config.layers):
        at = f"layer.{k}."
        v = affine(normed(x, w, f"{at}norm1"), w, f"{at}v")
        if config.mix == "mean":
            heard = near.to(x.dtype) @ v / near.sum(1, keepdim=True)
        else:
            heard = v[:, None].masked_fill(~near[..., None], -torch.inf).amax(2)
        x = after(x, affine(heard, w, f"{at}mixed"), w, at)
    return normed(x, w, "out")


@few
@given(st.sampled_from(["mean", "max"]), st.integers(1, 7), st.booleans(), st.integers(0, 99))
def test_mixing(mix, n, local, seed):
    where = ((window(1) if local else full())(V.I, V.J),)
    config = mixing.Config(4, 6, 2, mix, 0.0, where)
    x = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    places = torch.arange(n)
    near = (places[:, None] - places).abs() <= 1 if local else torch.ones(n, n, dtype=torch.bool)
    compare(mixing.program(config), lambda w: mixed(w, config, x, near), x)


def convolved(w, config, x):
    """Lightweight and dynamic convolutions: weights of a head that sum to 1 over the taps."""
    batch, n, _ = x.shape
    for k in range(config.layers):
        at = f"layer.{k}."
        v = affine(normed(x, w, f"{at}norm1"), w, f"{at}v")
        part = torch.einsum("hpd,bnd->bhnp", w(f"{at}part.weight"), v)
        if config.dynamic:
            tap = torch.einsum("hkod,bnd->bhnk", w(f"{at}tap.weight"), v).softmax(-1)
        else:
            shares = w(f"{at}tap").reshape(config.heads, 1, config.taps).softmax(-1)
            tap = shares.expand(batch, config.heads, n, config.taps)
        padded = f.pad(part, (0, 0, config.left, config.taps - 1 - config.left))
        windows = padded.unfold(2, config.taps, 1)
        heard = torch.einsum("bhnk,bhnpk->bnhp", tap, windows).flatten(2)
        x = after(x, affine(heard, w, f"{at}added"), w, at)
    return normed(x, w, "out")


@few
@given(
    st.booleans(),
    st.booleans(),
    st.integers(1, 7),
    st.sampled_from([1, 2, 3, 5]),
    st.integers(0, 99),
)
def test_lightweight_and_dynamic_convolution(dynamic, causal, n, taps, seed):
    config = convolution.Config(4, 2, taps, 6, 2, dynamic, causal, dropout=0.0)
    x = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    compare(convolution.program(config), lambda w: convolved(w, config, x), x)


def gated(w, config, x):
    """Convolutional sequence to sequence: gated linear units over windows."""
    for k in range(config.layers):
        taps = w(f"layer.{k}.taps").permute(1, 2, 0)
        padded = f.pad(x.mT, (config.left, config.taps - 1 - config.left))
        x = (x + f.glu(f.conv1d(padded, taps, w(f"layer.{k}.bias")).mT, -1)) * 0.5**0.5
    return x


@few
@given(st.booleans(), st.integers(1, 7), st.sampled_from([1, 3, 5]), st.integers(0, 99))
def test_convs2s(causal, n, taps, seed):
    config = convs2s.Config(4, taps, 2, causal, dropout=0.0)
    x = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    compare(convs2s.program(config), lambda w: gated(w, config, x), x)


def test_an_unknown_mix_is_an_error():
    with pytest.raises(EdgewiseError, match="mean"):
        mixing.Config(mix="median")
