"""Blocks that values choose: exactly dense attention with their mask, values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.errors import EdgewiseError
from edgewise.kernels.attention import select_blocks, selected_attention
from edgewise.kernels.attention import selected as module
from edgewise.kernels.attention.selected import selected_pairs


def mask_of(selected, n, m, block, causal):
    i, j = torch.arange(n)[:, None], torch.arange(m)
    rows = selected[..., torch.arange(n) // block, :]
    found = (rows[..., None, :] == (j // block)[:, None]).any(-1)
    return found & (j <= i) if causal else found


def dense(q, k, v, mask, scale=None):
    shared = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(shared, -3) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    score = (q @ k.mT * scale).masked_fill(~mask, -torch.inf)
    return torch.nan_to_num(score.softmax(-1), 0.0) @ v


@given(
    n=st.sampled_from([1, 7, 16, 33]),
    m=st.sampled_from([1, 9, 32]),
    block=st.sampled_from([1, 4, 16]),
    shared=st.sampled_from([1, 3]),
    causal=st.booleans(),
    top=st.integers(1, 5),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_is_dense_attention_with_the_mask(n, m, block, shared, causal, top, data):
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 9)))
    blocks = -(-m // block)
    shape = (2, 2 * shared, -(-n // block), top)
    selected = torch.randint(-1, blocks, shape, generator=random)
    q = torch.randn(2, 2 * shared, n, 4, generator=random, dtype=torch.float64)
    k, v = (torch.randn(2, 2, m, d, generator=random, dtype=torch.float64) for d in (4, 3))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    scale = data.draw(st.sampled_from([None, 0.7, -0.3, 0.0]))
    out = selected_attention(q, k, v, selected, block=block, causal=causal, scale=scale)
    right = dense(q, k, v, mask_of(selected, n, m, block, causal), scale)
    torch.testing.assert_close(out, right)
    if right.requires_grad:
        weight = torch.randn(out.shape, generator=random, dtype=torch.float64)
        mine, other = (torch.autograd.grad(x, leaves, weight) for x in (out, right))
        for a, b in zip(mine, other, strict=True):
            torch.testing.assert_close(a, b.nan_to_num(0.0))
    if not causal:
        pairs = int(mask_of(selected, n, m, block, False).sum())
        assert selected_pairs(selected, n, m, block=block) == pairs


def test_parts_are_the_whole(monkeypatch):
    x = torch.randn(1, 2, 40, 4)
    selected = select_blocks(x, x, 3, block=8)
    right = selected_attention(x, x, x, selected, block=8)
    monkeypatch.setattr(module, "NUMBERS", 1)
    torch.testing.assert_close(selected_attention(x, x, x, selected, block=8), right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    x = torch.randn(1, 2, 40, 8)
    selected = select_blocks(x, x, 2, block=8, causal=True)
    right = selected_attention(x, x, x, selected, block=8, causal=True)
    found = selected_attention(*[x.to(dtype)] * 3, selected, block=8, causal=True)
    torch.testing.assert_close(found.float(), right, atol=0.03, rtol=0.03)


def test_the_best_blocks_are_chosen():
    q, k = torch.randn(3, 4, 50, 8), torch.randn(3, 2, 70, 8)
    found = select_blocks(q, k, 2, block=16)
    assert found.shape == (3, 4, 4, 2)
    for head in range(4):
        for row in range(4):
            mean = q[0, head, 16 * row : 16 * row + 16].mean(0)
            score = torch.stack(
                [k[0, head // 2, x : x + 16].mean(0) @ mean for x in range(0, 70, 16)]
            )
            assert set(found[0, head, row].tolist()) == set(score.topk(2).indices.tolist())


def test_causal_blocks_take_their_own_and_none_after_it():
    x = torch.randn(2, 3, 64, 8, requires_grad=True)
    found = select_blocks(x, x, 3, block=16, causal=True)
    own = torch.arange(4)
    assert (found[..., 0] == own).all()
    assert (found <= own[:, None]).all()
    assert (found[..., 0, 1:] == -1).all()
    assert not found.requires_grad
    assert selected_pairs(found, 64, 64, block=16) == 2 * 3 * 16 * 16 * (1 + 2 + 3 + 3)


def test_nothing_is_computed_of_other_blocks():
    """So it may be anything: what is not chosen has no influence at all."""
    x = torch.randn(1, 64, 4)
    selected = torch.tensor([[[0], [1], [1], [3]]])
    v = x.clone()
    v[:, 32:48] = torch.nan
    assert selected_attention(x, x, v, selected, block=16).isfinite().all()


@pytest.mark.parametrize(
    ("selected", "block"),
    [
        (torch.zeros(2, 2, 1), 4),
        (torch.zeros(2, 3, 1, dtype=torch.int64), 4),
        (torch.full((2, 2, 1), 2), 4),
        (torch.full((2, 2, 1), -2), 4),
        ([[0]], 4),
        (torch.tensor(0), 4),
        (torch.zeros(2, 2, 1, dtype=torch.int64), 0),
    ],
)
def test_mistakes_are_refused(selected, block):
    x = torch.zeros(2, 8, 4)
    with pytest.raises(EdgewiseError):
        selected_attention(x, x, x, selected, block=block)


@pytest.mark.parametrize("top", [0, 1.5, "2"])
def test_wrong_numbers_of_blocks_are_refused(top):
    x = torch.zeros(2, 8, 4)
    with pytest.raises(EdgewiseError):
        select_blocks(x, x, top, block=4)


def test_no_tokens():
    q, x = torch.zeros(2, 0, 4, requires_grad=True), torch.zeros(2, 8, 4)
    found = select_blocks(q, x, 2, block=4)
    assert selected_attention(q, x, x, found, block=4).shape == (2, 0, 4)
    none = torch.full((2, 2, 0), 0)
    assert selected_attention(x, x, x, none, block=4).eq(0).all()


def test_under_compile():
    x = torch.randn(1, 2, 64, 8)

    def layer(x):
        selected = select_blocks(x, x, 2, block=16, causal=True)
        return selected_attention(x, x, x, selected, block=16, causal=True)

    torch.testing.assert_close(torch.compile(layer, backend="aot_eager")(x), layer(x))
