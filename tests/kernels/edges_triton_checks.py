"""The GPU kernels along edges in Triton's interpreter, in a process of its own."""

import additive_cases
import pytest
import relational_cases
import torch
from segment_cases import Call, assert_like_reference

from edgewise.kernels.edges import (
    index,
    reference,
    triton_attention,
    triton_relational,
    triton_segments,
)
from edgewise.kernels.edges.registry import SEGMENTS


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
    monkeypatch.setattr(index, "CHUNK", 64)
    torch.manual_seed(0)
    x, y = torch.randn(rows, d).to(dtype), torch.randn(rows, m).to(dtype)
    family = torch.randn(members, m, d).to(dtype)
    groups = index.grouping(torch.randint(members, (rows,)), members)
    near = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.1, "rtol": 2e-2}
    found = triton_segments.grouped_linear(x, family, groups)
    torch.testing.assert_close(found, reference.grouped_linear(x, family, groups), **near)
    found = triton_segments.grouped_outer(y, x, groups)
    torch.testing.assert_close(found, reference.grouped_outer(y, x, groups), **near)


Additive = additive_cases.Call
BOTH = (False, True)  # without a vector, and with one
ADDITIVE = [
    *(Additive(vector) for vector in BOTH),
    *(Additive(vector, 1, 4, 6, 12, 2, 3, hub=40) for vector in BOTH),
    Additive(dtype=torch.float16, dropout=0.4),
    Additive(True, 2, 6, 5, 30, 16, 16, hub=30, dropout=0.4),
    Additive(entries=0),
    *(Additive(vector, 8, 4, 6, 12, 16, 16, hub=40, beside=True) for vector in BOTH),
    Additive(False, 4, d=1, dv=5, beside=True, dropout=0.4),
    *(Additive(vector, 2, n, m) for vector in BOTH for n, m in ((0, 7), (2, 0), (0, 0))),
]


@pytest.mark.parametrize("call", ADDITIVE, ids=repr)
def test_additive_attention_is_the_reference(call):
    additive_cases.assert_no_worse_than_reference(call, triton_attention.OPERATIONS)


Relational = relational_cases.Call
RELATIONAL = [
    Relational(),
    Relational(True, True, True, True, True, batch=2),
    Relational(False, True, False, True, dropout=0.4),
    Relational(True, True, True, True, n=4, m=6, hub=40, dropout=0.4),
    Relational(True, True, True, True, own=True, batch=2, h=4, hub=40, d=16, w=40, dropout=0.4),
    Relational(h=4, n=2, m=3, entries=140, views=True),
    Relational(True, True, batch=2, views=True),
    Relational(d=0, dv=0, h=1),
    Relational(entries=0),
    Relational(n=0, entries=0),
    Relational(True, True, True, True, dtype=torch.float16, d=16, dv=5, w=9),
    Relational(own=True, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("call", RELATIONAL, ids=repr)
def test_attention_with_vectors_of_edges_is_the_reference(call):
    relational_cases.assert_no_worse_than_reference(call, triton_relational.OPERATIONS)
