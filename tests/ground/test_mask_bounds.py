"""Bounds of blocks leave out pairs that cannot meet a comparison, and no others."""

import numpy as np
import pytest
import torch

from edgewise import R, V
from edgewise.ground.masks import bounds, classes
from edgewise.ground.masks.sides import Pairs
from tests.ground.derived_masks import DERIVED, facts_of_rules
from tests.ground.test_masks import assert_attends

A, B, C, D, E = V.A, V.B, V.C, V.D, V.E
TESTS = {
    "a radius": ([(A - B) * (A - B) + (C - D) * (C - D) <= 50],
                 lambda a, b, c, d: (a - b) ** 2 + (c - d) ** 2 <= 50),
    "Manhattan distance": ([abs(A - B) + abs(C - D) < 8],
                           lambda a, b, c, d: abs(a - b) + abs(c - d) < 8),
    "a product": ([(A - B) * (C - D) == 6], lambda a, b, c, d: (a - b) * (c - d) == 6),
    "a remainder": ([(A + B * C) % 7 == 3], lambda a, b, c, d: (a + b * c) % 7 == 3),
    "a quotient": ([(A * C) // 5 > B * D], lambda a, b, c, d: a * c // 5 > b * d),
    "unequal": ([A * C != B * D], lambda a, b, c, d: a * c != b * d),
    "two of them": ([A * C >= B, abs(A - D) <= 3],
                    lambda a, b, c, d: (a * c >= b) & (abs(a - d) <= 3)),
    "a variable between": ([E == A - B, E * E <= 9], lambda a, b, c, d: (a - b) ** 2 <= 9),
    "a predicate": ([R.special.sub(A, B, E), R.special.leq(E, 3)],
                    lambda a, b, c, d: (a >= b) & (a - b <= 3) & (b >= 0)),
    "beside a negation": ([~R.special.leq(A, B), A * A + D * D <= 99],
                          lambda a, b, c, d: (a > b) & (a * a + d * d <= 99)),
    "numbers that are not exact": ([(A * (1 << 38) + 1) * (C * (1 << 30)) > B * D],
                                   lambda a, b, c, d: (a * 2**38 + 1) * c * 2**30 > b * d),
}  # fmt: skip


def test_a_pair_of_blocks_is_kept_where_it_may_hold(monkeypatch):
    monkeypatch.setattr(bounds, "BEGIN", 4)
    random = np.random.default_rng(0)
    query = {name: random.integers(-40, 60, 300) for name in ("A", "C")}
    key = {name: random.integers(-40, 60, 500) for name in ("B", "D")}
    for name, (tests, holds) in TESTS.items():
        near = bounds.near_pairs(query, key, tests, 1 << 30)
        assert near is not None, name
        left = np.zeros((300, 500), bool)
        for i, j in near:
            assert not left[i, j].any(), name  # none twice
            left[i, j] = True
        at = [x.astype(object)[:, None] for x in query.values()]
        to = [x.astype(object) for x in key.values()]
        true = np.broadcast_to(holds(at[0], to[0], at[1], to[1]), left.shape).astype(bool)
        assert not (true & ~left).any(), name
        if name in ("a radius", "Manhattan distance", "two of them", "a variable between"):
            assert left.mean() < 0.7, name


def test_tables_with_a_common_column_meet_in_it():
    table = {"S": np.arange(1000) // 10, "A": np.arange(1000)}
    other = {"S": np.arange(1000) // 10, "B": np.arange(1000)}
    near = bounds.near_pairs(table, other, [A * A <= B * B], 1 << 30)
    assert near is not None
    assert sum(len(i) for i, _ in near) < 100_000


@pytest.mark.parametrize(
    ("tests", "most"),
    [((), 1 << 30), ((R.special.neq(A, B),), 1 << 30), ((A * B > 0,), 100)],
    ids=["nothing is compared", "strings may be unequal", "too many are left"],
)
def test_bounds_that_are_of_no_use(tests, most):
    table = np.arange(-100, 100)
    assert bounds.near_pairs({"A": table}, {"B": table}, tests, most) is None


def test_pairs_in_space_are_not_compared_one_by_one(monkeypatch):
    """3,000 places have 9M pairs; those that are tested lie close together."""
    tested = []

    def counted(self, sides, columns, known=Pairs.tested):
        tested.append(len(next(iter(columns.values()))))
        return known(self, sides, columns)

    monkeypatch.setattr(Pairs, "tested", counted)
    case = next(case for case in DERIVED if case.name == "within a radius")
    model = case.program(8).compile(R.out, fill=0.0)
    places = torch.randperm(128 * 128, generator=torch.manual_seed(0))[:3000]
    at = torch.stack([torch.arange(3000), places // 128, places % 128])
    model(h=torch.randn(3000, 8), at=at)
    assert 0 < sum(tested) < 1_000_000


@pytest.mark.parametrize("name", ["within a radius", "knight's moves", "right of it and above",
                                  "overlapping events of an attendee"])  # fmt: skip
def test_masks_by_bounds_are_those_by_loops(name, monkeypatch):
    monkeypatch.setattr(classes, "MOST_TESTED", 0)
    monkeypatch.setattr(classes, "FEWER", 1)
    monkeypatch.setattr(bounds, "SMALLEST", 2)
    case = next(case for case in DERIVED if case.name == name)
    torch.manual_seed(0)
    tables = facts_of_rules(40)
    model = case.program(8).compile(R.out, seed=0, fill=0.0).double()
    x = torch.randn(40, 8, dtype=torch.float64, requires_grad=True)
    assert_attends(model, x, {"h": x, **case.inputs(tables)}, case.mask(40, tables))
