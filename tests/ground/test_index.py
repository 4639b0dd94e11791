"""Keys are found by a table, by a search or by ranks: the same rows as a dictionary gives."""

import pytest
import torch

from edgewise.ground.index import (
    STRINGS,
    Grid,
    Keys,
    distinct_rows,
    index_of,
    locate,
    pack,
    union_of,
)

SPANS = {"narrow": (0, 6), "negative": (-5, 4), "wide": (0, 1 << 39), "strings": (0, STRINGS + 9)}


def drawn(span, rows, arity, seed):
    return torch.randint(*SPANS[span], (rows, arity), generator=torch.manual_seed(seed))


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("wanted", [1, 500])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_rows_are_those_of_a_dictionary(span, arity, wanted, is_sorted):
    keys = distinct_rows(drawn(span, 40, arity, 0))
    keys = keys if is_sorted else keys[torch.randperm(len(keys), generator=torch.manual_seed(1))]
    want = torch.cat([drawn(span, wanted, arity, 2), keys[:3], keys[:1] + 7, keys[:1] - 7])
    rows = {tuple(key): row for row, key in enumerate(keys.tolist())}
    found = locate(Keys(keys), want.unbind(1))
    assert found.tolist() == [rows.get(tuple(key), -1) for key in want.tolist()]


def test_rows_of_a_grid_and_of_nothing():
    want = torch.tensor([[0, 1], [2, 2], [-1, 0], [1, 5]])
    assert locate(Grid((2, 3)), want.unbind(1)).tolist() == [1, -1, -1, -1]
    assert locate(Keys(torch.zeros(0, 2).long()), want.unbind(1)).tolist() == [-1] * 4
    assert index_of(Grid((2, 3)).keys) == Grid((2, 3))


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("arity", [1, 2, 3])
def test_packed_keys_keep_their_order(span, arity):
    keys = drawn(span, 60, arity, 3)
    (codes,) = pack(keys.unbind(1))
    order = sorted(range(len(keys)), key=lambda row: keys[row].tolist())
    assert codes.argsort(stable=True).tolist() == order
    assert distinct_rows(keys).tolist() == sorted(
        {tuple(key): key for key in keys.tolist()}.values()
    )


@pytest.mark.parametrize("span", SPANS)
def test_a_union_has_the_rows_of_both(span):
    old, new = (distinct_rows(drawn(span, 30, 2, seed)) for seed in (4, 5))
    index, rows = union_of(Keys(old), new)
    assert index.keys[rows].equal(torch.cat([old, new]))
    assert index.rows == len({tuple(key) for key in torch.cat([old, new]).tolist()})
