"""A matrix of a family times each row, against one product per row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.library import opcheck

import edgewise.kernels.edges.index
from edgewise import F, Program, R, V, W
from edgewise.kernels.edges import EdgeOperation, choose, grouped_linear, grouping
from edgewise.kernels.edges.operators import linear_by_group, outer_by_group

sizes = st.sampled_from([1, 2, 5, 17])


def drawn(rows, members, m, d, dtype=torch.float64):
    torch.manual_seed(rows + members)
    x, family = torch.randn(rows, d, dtype=dtype), torch.randn(members, m, d, dtype=dtype)
    return x.requires_grad_(), family.requires_grad_(), torch.randint(members, (rows,))


@given(st.sampled_from([0, 1, 9, 200]), sizes, sizes, sizes)
@settings(max_examples=30, deadline=None)
def test_it_is_one_product_per_row(rows, members, m, d):
    x, family, member = drawn(rows, members, m, d)
    expected = torch.einsum("rmd,rd->rm", family[member], x)
    found = grouped_linear(x, family, grouping(member, members))
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    mine, right = (
        torch.autograd.grad((y * weight).sum(), (x, family), retain_graph=True)
        for y in (found, expected)
    )
    torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("rows", [40, 700])
def test_members_side_by_side_are_those_one_after_another(rows, monkeypatch):
    """Row 0, which fills members up, is not a number: it stays in its own member."""
    x, family, _ = drawn(rows, 20, 3, 4)
    x.data[0] = torch.nan
    member, found = torch.arange(rows) * 7 % 19, []  # one has no rows
    for most in (1.5, 0.0):
        monkeypatch.setattr(edgewise.kernels.edges.index, "MOST_PADDED", most)
        groups = grouping(member, 20)
        assert (groups.padded is None) == (most == 0)
        out = grouped_linear(x, family, groups)
        found.append((out, *torch.autograd.grad(out.square().sum(), (x, family))))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)
    assert found[0][2].isfinite().flatten(1).all(1).tolist() == [n != 0 for n in range(20)]


def test_gradients_of_gradients():
    x, family, member = drawn(7, 3, 2, 4)
    groups = grouping(member, 3)
    assert torch.autograd.gradgradcheck(lambda x, w: grouped_linear(x, w, groups), (x, family))


def test_operators_are_what_torch_expects():
    x, family, member = drawn(9, 3, 2, 4, torch.float32)
    groups = grouping(member, 3).tensors
    opcheck(linear_by_group.operator, (x, family, groups))
    opcheck(outer_by_group.operator, (torch.randn(9, 2, requires_grad=True), x, groups))


def test_a_gpu_is_refused_where_there_is_none():
    choice = choose(EdgeOperation("grouped_linear", 4, torch.float32, "cpu"))
    assert choice.kernel.name == "reference"
    assert dict(choice.refusals)["triton"] == "it runs on a CUDA GPU, not on cpu"


@pytest.mark.parametrize("pairs", [6, 40], ids=["some pairs", "most pairs"])
@pytest.mark.parametrize("aggregation", [F.sum_agg, F.avg_agg])
def test_rules_with_a_matrix_for_each_type(pairs, aggregation):
    """Heads × types are one wide product where most are there, else each its own: both the same."""
    program = Program(
        [(R.h(V.I) <= (R.x(V.I, V.T)[W.w(V.T)[2, 3]])) | [aggregation]], domains={V.T: 5}
    )
    torch.manual_seed(0)
    keys = torch.randperm(50)[:pairs].sort().values
    facts = [R.x(int(k) // 5, int(k) % 5)[torch.randn(3).tolist()] for k in keys]
    model = program.compile(R.h, seed=0, dtype=torch.float64)
    found = model.rows(model.ground(facts=facts))
    weights = {"w": model.weight("w").detach().clone().requires_grad_()}
    solved = program.solve(facts, weights=weights)[R.h(V.I)]
    expected = torch.stack(list(solved.values()))
    torch.testing.assert_close(found.data, expected)
    (mine,) = torch.autograd.grad(found.data.square().sum(), [model.weight("w")])
    (right,) = torch.autograd.grad(expected.square().sum(), [weights["w"]])
    torch.testing.assert_close(mine, right)
