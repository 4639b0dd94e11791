"""The GPU kernels along edges in Triton's interpreter, in a process of its own."""

import pytest
import scored_cases
import torch
from segment_cases import Call, assert_like_reference

from edgewise.kernels.edges import groups as prepared
from edgewise.kernels.edges import index, reference, triton_segments
from edgewise.kernels.edges.registry import SEGMENTS
from edgewise.kernels.scored import KINDS, triton_scored


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(index, "MOST", 8)


CALLS = [
    Call(),
    Call(4, 6, 12, 5, hub=40),
    Call(3, 2, 0),
    Call(2, 3, 9, 130),
    Call(5, 7, 30, 1, hub=20),
    Call(60, 6, 50, 5, hub=20),
    Call(4, 6, 12, 16, hub=40, dtype=torch.float16),
]


@pytest.mark.parametrize("operation", SEGMENTS)
@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_rows_are_the_reference(operation, call):
    assert_like_reference(operation, triton_segments.OPERATIONS, call)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("rows", "members", "m", "d"), [(0, 2, 3, 4), (150, 3, 5, 70), (9, 4, 1, 2)]
)
def test_products_with_a_family_are_those_of_each_member(dtype, rows, members, m, d, monkeypatch):
    monkeypatch.setattr(triton_segments, "CHUNK", 64)
    monkeypatch.setattr(prepared, "CHUNK", 64)
    torch.manual_seed(0)
    x, y = torch.randn(rows, d).to(dtype), torch.randn(rows, m).to(dtype)
    family = torch.randn(members, m, d).to(dtype)
    groups = prepared.grouping(torch.randint(members, (rows,)), members)
    near = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.1, "rtol": 2e-2}
    found = triton_segments.grouped_linear(x, family, groups)
    torch.testing.assert_close(found, reference.grouped_linear(x, family, groups), **near)
    found = triton_segments.grouped_outer(y, x, groups)
    torch.testing.assert_close(found, reference.grouped_outer(y, x, groups), **near)


SCORED = [
    *(scored_cases.Call(kind) for kind in KINDS),
    *(scored_cases.Call(kind, 1, 4, 6, 12, 2, 3, hub=40) for kind in KINDS),
    scored_cases.Call("additive", dtype=torch.float16, dropped=True),
    scored_cases.Call("of sums", 2, 6, 5, 30, 16, 16, hub=30, dropped=True),
    scored_cases.Call("additive", entries=0),
    *(scored_cases.Call(kind, 8, 4, 6, 12, 16, 16, hub=40, beside=True) for kind in KINDS),
    scored_cases.Call("additive", 4, d=1, dv=5, beside=True, dropped=True),
    *(scored_cases.Call(kind, 2, n, m) for kind in KINDS for n, m in ((0, 7), (2, 0), (0, 0))),
]


@pytest.mark.parametrize("call", SCORED, ids=repr)
def test_scores_are_the_reference(call):
    scored_cases.assert_no_worse_than_reference(call, triton_scored)
