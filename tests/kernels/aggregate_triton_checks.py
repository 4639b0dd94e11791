"""The GPU kernels of aggregation in Triton's interpreter, in a process of its own."""

import pytest
import torch
from aggregate_cases import Call, assert_like_reference

from edgewise.kernels.aggregate import index, triton_rows
from edgewise.kernels.aggregate.contract import OPERATIONS


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(index, "MOST", 8)


CALLS = [
    Call(),
    Call(4, 6, 12, 5, hub=40),
    Call(3, 2, 0),
    Call(2, 3, 9, 130),
    Call(4, 6, 12, 16, hub=40, dtype=torch.float16),
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_rows_are_the_reference(operation, call):
    assert_like_reference(operation, triton_rows, call)
