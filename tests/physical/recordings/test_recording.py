"""What a recording notes, and what it refuses to note."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from edgewise.layouts.recorded import Length, integer, one_call
from edgewise.physical.recordings.code import rerun_of
from edgewise.physical.recordings.notes import Unrecorded
from edgewise.physical.recordings.recording import Recording


def recorded(function: Callable[[Tensor], Any], x: Tensor) -> Callable[[Tensor], Any]:
    """A function as it was run on a tensor."""
    recording = Recording({"x": x}, {"x": [False] * x.ndim})
    with recording.running():
        found = function(x)
    if recording.failed:
        raise Unrecorded(recording.failed)
    return rerun_of(recording, recording.encoded(found))


def ints(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


def test_calls_are_run_again() -> None:
    rerun = recorded(lambda x: x.sort().values * 2, ints(3, 1))
    assert rerun(ints(5, 9, 2)).tolist() == [4, 10, 18]


def test_sizes_follow_from_the_new_tensor() -> None:
    rerun = recorded(lambda x: torch.arange(2 * x.shape[0] - 1) + x.max(), ints(3, 1))
    assert rerun(ints(5, 9, 2)).tolist() == [9, 10, 11, 12, 13]


def test_a_decision_is_checked() -> None:
    def larger(x: Tensor) -> Tensor:
        return x + 1 if integer(x.max()) > 4 else x - 1

    rerun = recorded(larger, ints(3, 1))
    assert rerun(ints(4, 0)).tolist() == [3, -1]
    assert rerun(ints(5, 0)) is None


def test_a_truth_value_is_checked() -> None:
    rerun = recorded(lambda x: x * 2 if bool((x > 0).all()) else x, ints(3, 1))
    assert rerun(ints(4)).tolist() == [8]
    assert rerun(ints(4, 0)) is None


@pytest.mark.parametrize(
    "read", [int, lambda n: len(range(n)), lambda n: len([0] * n), lambda n: round(n)]
)
def test_a_length_that_is_read_is_fixed(read: Callable[[Any], int]) -> None:
    rerun = recorded(lambda x: x + read(x.shape[0]), ints(3, 1))
    assert rerun(ints(7, 8)).tolist() == [9, 10]
    assert rerun(ints(7, 8, 9)) is None


def test_a_length_in_a_text_is_fixed() -> None:
    replay = recorded(lambda x: x + len(f"{(x.shape[0],)}"), ints(3, 1))
    assert replay(ints(7, 8)).tolist() == [11, 12]
    assert replay(ints(7, 8, 9)) is None


def test_a_function_of_ours_sees_sizes_that_are_fixed() -> None:
    @one_call
    def rows_of(like: Tensor) -> int:
        return like.shape[0]

    def shape(x: Tensor) -> Tensor:
        return torch.zeros(rows_of(torch.empty((x.shape[0], 2), device="meta")))

    replay = recorded(shape, ints(3, 1))
    assert replay(ints(1, 2)).shape == (2,)
    assert replay(ints(1, 2, 3)) is None


def test_an_int_of_a_tensor_is_fixed() -> None:
    rerun = recorded(lambda x: x + int(x.sum()), ints(3, 1))
    assert rerun(ints(2, 2)).tolist() == [6, 6]
    assert rerun(ints(2, 3)) is None


def test_equal_lengths_are_one() -> None:
    def same(x: Tensor) -> Tensor:
        assert x.unique().shape[0] == x.shape[0]
        return x.new_full((x.unique().shape[0],), x.shape[0])

    rerun = recorded(same, ints(3, 1))
    assert rerun(ints(3, 1, 2)).tolist() == [3, 3, 3]
    assert rerun(ints(3, 3)) is None


def test_what_is_written_in_place_is_written_again() -> None:
    def ranks(x: Tensor) -> Tensor:
        found = torch.empty_like(x)
        found[x.argsort()] = torch.arange(x.shape[0])
        return found.add_(1)

    rerun = recorded(ranks, ints(3, 1))
    assert rerun(ints(5, 9, 2)).tolist() == [2, 3, 1]


def test_functions_of_ours_are_one_call() -> None:
    @one_call
    def largest(x: Tensor) -> int:
        return int(x.numpy().max())

    rerun = recorded(lambda x: torch.zeros(largest(x)), ints(3, 1))
    assert rerun(ints(5)).shape == (5,)


def unpacked(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() + 1)


def in_a_table(x: Tensor) -> Tensor:
    return x + {x.shape[0]: 1}[x.shape[0]]


def from_an_address(x: Tensor) -> Tensor:
    return x + x.untyped_storage().nbytes()


def caught(x: Tensor) -> Tensor:
    try:
        return x[torch.arange(x.shape[0] + 1)]
    except IndexError:
        return x


@pytest.mark.parametrize("escape", [unpacked, in_a_table, from_an_address, caught])
def test_what_cannot_be_seen_is_refused(escape: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(Unrecorded):
        recorded(escape, ints(3, 1))


def test_a_size_of_a_meta_tensor_is_known() -> None:
    def shape(x: Tensor) -> Tensor:
        like = torch.empty((x.shape[0], 2), device="meta")
        assert isinstance(like.shape[0], Length)
        return torch.zeros(like.shape)

    assert recorded(shape, ints(3, 1))(ints(1, 2, 3)).shape == (3, 2)


def test_a_call_on_a_meta_tensor_fixes_its_sizes() -> None:
    def shape(x: Tensor) -> Tensor:
        return torch.zeros(torch.empty((x.shape[0], 2), device="meta").T.shape)

    rerun = recorded(shape, ints(3, 1))
    assert rerun(ints(1, 2)).shape == (2, 2)
    assert rerun(ints(1, 2, 3)) is None
