"""Calls as other libraries have them are refused with what to write, which gives their numbers."""

import warnings

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.functional import scaled_dot_product_attention as sdpa

from edgewise import EdgewiseError, attention, scores
from edgewise.graphs import causal, from_dense, per_head, where, window
from edgewise.kernels.attention import OPTIONS
from edgewise.kernels.attention.calls.unknown_options import INSTEAD
from edgewise.scores import I, J, S

Q, K, X = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(0)).unbind()
MASK = torch.ones(8, 8, dtype=torch.bool).tril()
ADDED = torch.zeros(8, 8).masked_fill(~MASK, -torch.inf)


def causal_mask(b, h, i, j):
    return i >= j


BLOCKS = create_block_mask(causal_mask, 1, 1, 8, 8, device="cpu")
HABITS = {
    "is_causal": (lambda: attention(Q, K, X, is_causal=True), "causal()"),
    "by position": (lambda: attention(Q, K, X, None, 0.0, True), "by name"),
    "attn_mask": (lambda: attention(Q, K, X, attn_mask=MASK), "graphs.from_dense(mask)"),
    "enable_gqa": (lambda: attention(Q, K, X, enable_gqa=True), "leave it out"),
    "dropout_p": (lambda: attention(Q, K, X, dropout_p=0.1), "`dropout=0.1`"),
    "block_mask": (lambda: attention(Q, K, X, block_mask=BLOCKS), "graphs.where"),
    "score_mod": (lambda: attention(Q, K, X, score_mod=lambda s, b, h, i, j: s), "`score=`"),
    "window_size": (lambda: attention(Q, K, X, window_size=(3, 0)), "window(256) & causal()"),
    "a misspelling": (lambda: attention(Q, K, X, biass=None), "did you mean `bias`?"),
    "a block mask": (lambda: attention(Q, K, X, BLOCKS), "mask_mod(0, 0, i, j)"),
    "a flag": (lambda: attention(Q, K, X, True), "causal()"),
    "a list": (lambda: attention(Q, K, X, [causal(), window(1)]), "per_head(a, b)"),
    "a function of scores": (lambda: attention(Q, K, X, score=lambda s, b, h, i, j: s), "S - abs"),
    "a bool bias": (lambda: attention(Q, K, X, bias=MASK), "graphs.from_dense(mask)"),
    "an added mask": (lambda: attention(Q, K, X, from_dense(ADDED)), "from_dense(mask == 0)"),
    "a mask of large numbers": (lambda: from_dense(ADDED.nan_to_num()), "from_dense(mask == 0)"),
    "a mask of ten thousands": (lambda: from_dense(-1e4 * (~MASK).float()), "`bias=mask`"),
    "an added array": (lambda: from_dense(ADDED.numpy()), "from_dense(mask == 0)"),
    "infinite distances": (lambda: from_dense(-ADDED), "from_dense(mask == 0)"),
}


@pytest.mark.parametrize(("call", "help"), HABITS.values(), ids=HABITS)
def test_a_habit_is_refused_with_what_to_write(call, help):
    with pytest.raises(EdgewiseError) as caught:
        call()
    assert help in caught.value.help


def test_what_is_written_instead_gives_the_same_numbers():
    same = sdpa(Q, K, X, is_causal=True)
    for graph in (
        causal(), from_dense(MASK), from_dense(ADDED == 0), per_head(causal(), causal()),
        where(lambda i, j: causal_mask(0, 0, i, j)),
    ):  # fmt: skip
        torch.testing.assert_close(attention(Q, K, X, graph), same)
    torch.testing.assert_close(attention(Q, K, X, bias=ADDED), same)
    near = sdpa(Q, K, X, -(torch.arange(8)[:, None] - torch.arange(8)).abs().float())
    torch.testing.assert_close(attention(Q, K, X, score=S - abs(I - J)), near)
    shared = sdpa(Q, K[:, :1], X[:, :1], enable_gqa=True)
    torch.testing.assert_close(attention(Q, K[:, :1], X[:, :1]), shared)
    soft = 50.0 * torch.tanh(Q @ K.mT / 2.0 / 50.0)
    found = attention(Q, K, X, score=scores.softcap(50.0))
    torch.testing.assert_close(found, soft.softmax(-1) @ X)


def test_no_option_of_ours_is_refused():
    assert not INSTEAD.keys() & set(OPTIONS)
    assert {"graph", "scale", "bias", "kernel", "return_weights"} <= set(OPTIONS)


def test_a_scale_of_numpy_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = attention(Q, K, X, causal(), scale=np.float32(0.25))
    torch.testing.assert_close(found, sdpa(Q, K, X, is_causal=True, scale=0.25))
