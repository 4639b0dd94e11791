"""Every mask of the corpus is fused, computes the pairs that a brute-force mask allows and no
others, and has its values and gradients."""

import pytest
import torch

from edgewise import R, ragged
from edgewise.ground.masks import lower
from tests.ground.mask_corpus import CORPUS, facts

N, D = 26, 8


def attended(model, x, mask):
    """softmax(q kᵀ + mask) v, rows without a key left out as zeros."""
    weight = dict(model.named_parameters())
    q, k, v = (x @ weight[f"{name}.h"].T for name in "qkv")
    score = (q @ k.T).masked_fill(~mask, -torch.inf)
    some = mask.any(1, keepdim=True)
    return torch.where(some, score, 0.0).softmax(1).where(some, 0.0) @ v


def gradients(model, out, x):
    leaves = [x, *model.parameters()]
    grads = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(leaves, grads, strict=True)]


@pytest.mark.parametrize("order", ["cheapest", "sorted"])
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_mask(case, order, monkeypatch):
    torch.manual_seed(0)
    if order == "sorted":  # where it makes blocks of two denser
        monkeypatch.setattr(lower, "LEAST_BLOCK", 2)
        monkeypatch.setattr(lower, "MOVED", 0.0)
    tables = facts(N)
    mask = case.mask(N, tables)
    assert 0 < mask.sum() < N * N
    model = case.program(D).compile(R.out, seed=0, fill=0.0).double()
    x = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    inputs = {"h": x, **case.inputs(tables)}
    out = model(**inputs)
    expected = attended(model, x, mask)
    torch.testing.assert_close(out, expected)
    for got, want in zip(gradients(model, out, x), gradients(model, expected, x), strict=True):
        torch.testing.assert_close(got, want)
    (relation,) = [
        r
        for r in model.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"]
        if r["relation"] == "out"
    ]
    assert "not attention" not in relation
    assert relation["steps"][0]["pairs"] == mask.sum()


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_ragged(case):
    """Samples are packed: each has the mask of its own facts, and no pair is computed between."""
    torch.manual_seed(0)
    lengths = [9, 1, 14]
    tables = [facts(n, seed) for seed, n in enumerate(lengths)]
    masks = [case.mask(n, table) for n, table in zip(lengths, tables, strict=True)]
    model = case.program(D).compile(R.out, seed=0).double()
    x = [torch.randn(n, D, dtype=torch.float64) for n in lengths]
    each = [case.inputs(table) for table in tables]
    inputs = {"h": ragged(x), **{name: ragged([one[name] for one in each]) for name in each[0]}}
    out = model.rows(**inputs)
    expected = [attended(model, *one) for one in zip(x, masks, strict=True)]
    wanted = torch.cat([e[mask.any(1)] for e, mask in zip(expected, masks, strict=True)])
    torch.testing.assert_close(out.data, wanted)
    for got, want in zip(
        torch.autograd.grad(out.data.square().sum(), list(model.parameters())),
        torch.autograd.grad(wanted.square().sum(), list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
    step = model.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"][-1]["steps"][
        0
    ]
    assert step["pairs"] == sum(int(mask.sum()) for mask in masks)
