"""What a caller may give for a relation, and how little a new kind of it takes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from edgewise import EdgewiseError, Program, R, V, numbers, ragged, rows
from edgewise.functions import columns, values
from edgewise.graphs import from_dense, random_edges, window
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


@pytest.mark.parametrize("item", ["text", None, [1], {"a": "b"}, object(), iter([(0,)])])
def test_anything_else_is_refused(item):
    with pytest.raises(EdgewiseError, match="bad-input"):
        read_one("x", item, 1)


def test_a_new_kind_of_input_is_one_entry(monkeypatch):
    model = Program([R.out(V.X) <= (R.x(V.Y), R._edge(V.X, V.Y))]).compile(R.out)
    x, given = torch.ones(3, 2), Frame([(0, 1), (1, 2)])
    with pytest.raises(EdgewiseError, match="has type Frame"):
        model(x=x, edge=given)
    monkeypatch.setattr(read, "READERS", (*read.READERS, frame))
    expected = model.rows(x=x, edge=PAIRS)
    found = model.rows(x=x, edge=given)
    assert list(found) == list(expected)
    assert found.data.equal(expected.data)
    batch = model.rows(x=x, edge=ragged([given, PAIRS]))
    assert batch.data.equal(torch.cat([expected.data, expected.data]))


def test_arrays_of_any_strides_are_read():
    x, pairs = np.arange(6.0).reshape(3, 2), PAIRS.numpy()
    assert read_one("x", x[::-1], 1).equal(torch.from_numpy(x).flip(0))
    assert read_one("edge", pairs[:, ::-1], 2).keys.equal(PAIRS.flip(1))
    assert rows(PAIRS, x[1::-1]).values.equal(torch.from_numpy(x)[:2].flip(0))
    program = Program([R.h <= R.a[x[:2, ::-1]]])
    assert program.solve([R.a[[1.0, 0.0]]])[R.h].tolist() == [1.0, 3.0]
    assert from_dense(np.eye(3)[::-1]) == from_dense(torch.eye(3).flip(0))


@pytest.mark.parametrize("value", [torch.empty(0, 4), np.empty((3, 0)), torch.empty(0)])
@pytest.mark.parametrize("named", [False, True])
def test_a_weight_without_elements_is_refused_where_it_is_written(value, named):
    with pytest.raises(EdgewiseError, match="has size zero") as caught:
        R.a(V.X)["w":value] if named else R.a(V.X)[value]
    assert caught.value.code == "bad-weight"
    assert "R.a(V.X)" in str(caught.value)


def test_seeds_have_a_range():
    program = Program([R.h <= R.a[2, 3]])
    assert program.weights(seed=2**63 - 1)
    with pytest.raises(EdgewiseError, match="2\\^63 - 1"):
        program.weights(seed=2**63)
    with pytest.raises(EdgewiseError, match="2\\^64 - 1"):
        random_edges(3, seed=2**64)


def test_numbers_of_rows_and_columns_are_in_the_plural_where_they_are():
    with pytest.raises(EdgewiseError, match="the left one has 1 column, the right one 7 rows"):
        values.product(torch.ones(2), torch.ones(7))
    with pytest.raises(EdgewiseError, match="the left one has 1 column, the right one 7 rows"):
        columns.product(torch.ones(1, 1, 2), torch.ones(1, 1, 7))


@pytest.mark.parametrize(
    ("item", "help"),
    [
        (zip([0, 1], [1, 2], strict=True), "`list(...)`"),
        (window(1), "`window(1)(V.I, V.J)`"),
        (SimpleNamespace(edge_index=torch.tensor([[0], [1]])), "edge=data.edge_index"),
        (None, "an integer tensor (keys)"),
    ],
    ids=["an iterator", "a pattern", "a graph of PyG", "nothing"],
)
def test_what_is_no_input_says_what_to_give(item, help):
    model = Program([R.h(V.J) <= (R.x(V.I), R._edge(V.I, V.J))]).compile(R.h)
    with pytest.raises(EdgewiseError, match="has type") as caught:
        model(x=torch.ones(3), edge=item)
    assert help in caught.value.help
