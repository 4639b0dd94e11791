"""Rows found by some columns of their keys: the same as by a loop."""

import pytest
import torch

from edgewise import Program, R, V
from edgewise.ground import grounder
from edgewise.ground.index import STRINGS, Keys, distinct_rows
from edgewise.ground.joins.groups import KeyFilter, Lookups

SPANS = {"narrow": (0, 6), "negative": (-5, 4), "wide": (0, 1 << 39), "strings": (0, STRINGS + 9)}


def drawn(span, rows, arity, seed):
    return torch.randint(*SPANS[span], (rows, arity), generator=torch.manual_seed(seed))


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("positions", [(0,), (1,), (0, 2), (2, 1)])
@pytest.mark.parametrize("rows", [0, 60])
def test_matches_are_those_of_a_loop(span, positions, rows):
    keys = distinct_rows(drawn(span, rows, 3, 0))
    columns = list(positions)
    wanted = torch.cat([drawn(span, 20, 3, 1), keys[:9], keys[:1] + 7, keys[:1] - 7])[:, columns]
    first, counts, groups = Lookups().matches(Keys(keys), positions, wanted.unbind(1))
    order = torch.arange(rows) if groups.order is None else groups.order
    for key, start, count in zip(wanted, first, counts, strict=True):
        same = (keys[:, columns] == key).all(1).nonzero()[:, 0]
        assert order[start : start + count].tolist() == same.tolist()


@pytest.mark.parametrize("span", ["narrow", "negative", "wide"])
def test_a_filter_passes_every_key_that_is_there_and_few_others(span):
    keys = distinct_rows(drawn(span, 500, 2, 2))
    known = KeyFilter(Keys(keys))
    assert known.may_hold(keys.unbind(1)).all()
    others = torch.randint(0, 1 << 30, (5000, 2), generator=torch.manual_seed(3))
    assert known.may_hold(others.unbind(1)).float().mean() < 0.2


def test_most_keys_that_are_not_there_are_not_looked_up(monkeypatch):
    n, looked_up = 20_000, []

    def counted(index, columns, known=grounder.locate):
        looked_up.append(len(columns[0]))
        return known(index, columns)

    monkeypatch.setattr(grounder, "locate", counted)
    random = torch.Generator().manual_seed(0)
    edge = torch.randint(n, (2, 60_000), generator=random)
    edge = torch.cat([edge, edge[:, :5_000].flip(0)], 1).unique(dim=1)
    model = Program([R.one_way(V.X, V.Y) <= (R._e(V.X, V.Y), ~R.e(V.Y, V.X))]).compile(R.one_way)
    found = dict(model.rows(model.ground(e=edge)).items()).keys()
    pairs = set(map(tuple, edge.T.tolist()))
    assert {atom.terms for atom in found} == {(a, b) for a, b in pairs if (b, a) not in pairs}
    assert 10_000 <= sum(looked_up) < 25_000
