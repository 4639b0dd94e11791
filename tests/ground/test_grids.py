"""Rules on grids: groundings written down are those that a join finds."""

import pytest
import torch

from edgewise import R, V, W
from edgewise.errors import EdgewiseError
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Constants, Grid, same_keys
from edgewise.ground.joins.body import Body

SIZES = {"x": (5,), "y": (5,), "one": (1,), "m": (2, 5), "n": (5, 2), "s": (), "cube": (2, 5, 3)}
ON_GRIDS = [
    R.h(V.I) <= R.x(V.I),
    R.h(V.I) <= (R.x(V.I), R.y(V.I), R.s),
    R.h(V.J, V.I) <= (R.x(V.I), R.y(V.J)),
    R.h(V.I, V.A) <= R.m(V.A, V.I),
    R.h(V.A) <= (R.m(V.A, V.I), R.n(V.I, V.A)),
    R.h(V.B, V.A) <= (R.cube(V.A, V.I, V.B), R.x(V.I)),
    R.h(V.O, V.I) <= (R.one(V.O), R.x(V.I), R.one(V.P)),
    R.h(V.H, V.I) <= R.x(V.I)[W.w(V.H)[2, 2]],
    R.h(V.I) <= R.m(V.A, V.I)[W.w(V.A, V.H)[2, 2]],
]
BY_JOINS = [
    R.h(0) <= R.x(V.I),
    R.h <= R.x(V.I),
    R.h(V.I, V.I) <= R.x(V.I),
    R.h(V.I) <= (R.x(V.I), R._y(V.J)),
    R.h(V.I) <= (R.x(V.I), R.special.lt(V.I, 3)),
    R.h(V.A) <= (R.m(V.A, V.I), R.one(V.I)),
    R.h(V.A) <= R.m(V.A, V.A),
]


def grounder(limit: int = 1 << 20) -> Grounder:
    relations = {name: Grid(sizes) for name, sizes in SIZES.items()}
    return Grounder(Constants(), {"H": 3, "A": 2}, relations, limit)


@pytest.mark.parametrize("rule", ON_GRIDS + BY_JOINS, ids=repr)
def test_grids_are_what_joins_find(rule, monkeypatch):
    body = Body(rule, {})
    found = grounder().ground(body)
    assert (grounder()._on_grid(body) is not None) == (rule in ON_GRIDS)
    monkeypatch.setattr(Grounder, "_on_grid", lambda self, body: None)
    joined = grounder().ground(body)
    assert found.count == joined.count
    assert found.sizes == joined.sizes
    assert same_keys(found.heads, joined.heads)
    assert found.segments.count == joined.segments.count
    assert found.segments.width == joined.segments.width
    assert torch.equal(found.segments.ids, joined.segments.ids)
    assert found.rows.keys() == joined.rows.keys()
    for at, rows in joined.rows.items():
        assert (found.rows[at] is None) == (rows is None)
        assert rows is None or torch.equal(found.rows[at], rows)


def test_the_limit_holds_on_grids():
    body = Body(R.h(V.I, V.J) <= (R.x(V.I), R.y(V.J)), {})
    with pytest.raises(
        EdgewiseError, match="25 groundings, which take 800 B, more than the limit of 24 B"
    ):
        grounder(24).ground(body)
