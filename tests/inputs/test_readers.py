"""What a caller may give for a relation, and how little a new kind of it takes."""

import numpy as np
import pytest
import torch

from edgewise import EdgewiseError, Program, R, V, numbers, ragged, rows
from edgewise.inputs import read
from edgewise.inputs.read import read_one

PAIRS = torch.tensor([[0, 1], [1, 2]])


class Frame:
    """A data frame of pairs, which the package does not know."""

    def __init__(self, pairs):
        self.pairs = pairs


def frame(name, item):
    return rows(torch.tensor(item.pairs).T) if isinstance(item, Frame) else None


@pytest.mark.parametrize(
    "item",
    [PAIRS, PAIRS.int(), PAIRS.numpy(), rows(PAIRS), rows([[0, 1], [1, 2]])],
    ids=["int64", "int32", "numpy", "rows", "lists"],
)
def test_keys_are_keys_however_they_are_given(item):
    found = read_one("edge", item, 2)
    assert isinstance(found, rows)
    assert found.keys.equal(PAIRS)


def test_reals_are_values():
    x = torch.randn(3, 2)
    assert read_one("x", x, 1) is x
    assert read_one("x", np.ones((3, 2)), 1).equal(torch.ones(3, 2, dtype=torch.float64))
    assert read_one("x", numbers([[1, 2]]), 1).shape == (1, 2, 1)


@pytest.mark.parametrize("item", ["text", None, [1.0], {"a": 1}, object()])
def test_anything_else_is_refused(item):
    with pytest.raises(EdgewiseError, match="bad-input"):
        read_one("x", item, 1)


def test_a_new_kind_of_input_is_one_entry(monkeypatch):
    model = Program([R.out(V.X) <= (R.x(V.Y), R._edge(V.X, V.Y))]).compile(R.out)
    x, given = torch.ones(3, 2), Frame([(0, 1), (1, 2)])
    with pytest.raises(EdgewiseError, match="was given a Frame"):
        model(x=x, edge=given)
    monkeypatch.setattr(read, "READERS", (*read.READERS, frame))
    expected = model.rows(x=x, edge=PAIRS)
    found = model.rows(x=x, edge=given)
    assert list(found) == list(expected)
    assert found.data.equal(expected.data)
    batch = model.rows(x=x, edge=ragged([given, PAIRS]))
    assert batch.data.equal(torch.cat([expected.data, expected.data]))
