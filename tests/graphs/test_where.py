"""Patterns from functions of tensors, at chosen distances and at powers."""

import sys

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, attention
from edgewise.graphs import causal, distances, powers, where, window

DOCUMENT = torch.tensor([0, 0, 1, 0, 2, 1, 1, 2, 2, 0, 1, 2, 0])
PREDICATES = {
    "arithmetic": lambda i, j: (i * j + i) % 3 == 1,
    "a table": lambda i, j: (DOCUMENT[i] == DOCUMENT[j]) & (j <= i),
    "of keys": lambda i, j: j % 2 == 0,
    "everything": lambda i, j: i >= 0,
    "nothing": lambda i, j: j < 0,
}


@pytest.mark.parametrize("function", PREDICATES.values(), ids=PREDICATES)
@pytest.mark.parametrize(("n", "m"), [(13, 13), (5, 13), (13, 4), (0, 3), (3, 0)])
def test_a_predicate_is_its_set(function, n, m, monkeypatch):
    module = sys.modules["edgewise.graphs.patterns.where"]
    monkeypatch.setattr(module, "AT_ONCE", 30)  # some rows at a time
    i, j = torch.arange(n)[:, None], torch.arange(m)[None, :]
    expected = function(i, j).expand(n, m)
    pattern = where(function)
    assert torch.equal(pattern.dense(n, m), expected)
    assert pattern.count(n, m) == int(expected.sum())
    if n and m:
        blocks = pattern.blocks(n, m=m, block=4) if n != m else pattern.blocks(n, block=4)
        dense = torch.nn.functional.pad(expected, (0, -m % 4, 0, -n % 4))
        tiles = dense.reshape(-(-n // 4), 4, -(-m // 4), 4).any(3).any(1)
        assert len(blocks.index) == int(tiles.sum())


def test_a_predicate_is_a_pattern_like_any_other():
    pattern = where(lambda i, j: (i + j) % 2 == 0) & causal() | window(0)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 13, 4)
    scores = (q @ k.mT / 2).masked_fill(~pattern.dense(13), -torch.inf)
    torch.testing.assert_close(attention(q, k, v, pattern), scores.softmax(-1) @ v)
    rule = (R.h(V.I) <= (R.x(V.J), R._x(V.I), where(PREDICATES["a table"])(V.I, V.J))) | [F.sum]
    x = torch.randn(13, 1)
    mask = where(PREDICATES["a table"]).dense(13).float()
    torch.testing.assert_close(Program([rule]).compile(R.h)(x=x), (mask @ x).squeeze(1))
    with pytest.raises(EdgewiseError, match="no text form"):
        Program([rule]).text()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: where(3),
        lambda: where(lambda i: i > 3).rows(8),
        lambda: where(lambda i, j: i - j).rows(8),
        lambda: where(lambda i, j: (i > j).sum(1) > 2).rows(8),
        lambda: where(lambda i, j: i > 3 and j > 3).rows(8),
        lambda: where(lambda i, j: i > 3 and j > 3).blocks(8, 4),
    ],
)
def test_a_bad_predicate_is_our_error(wrong):
    with pytest.raises(EdgewiseError) as caught:
        wrong()
    assert caught.value.code == "bad-predicate"
    assert caught.value.span.file == __file__


@pytest.mark.parametrize(("n", "m"), [(20, 20), (7, 20), (20, 7), (1, 1), (0, 5)])
def test_distances_and_powers_are_their_sets(n, m):
    apart = (torch.arange(n)[:, None] - torch.arange(m)).abs()
    given = torch.tensor([0, 3, 4, 11, 100])
    assert torch.equal(distances([0, 3, 4, 11, 100]).dense(n, m), torch.isin(apart, given))
    for base in (2, 3):
        found = torch.tensor([0, *(base**k for k in range(10))])
        assert torch.equal(powers(base).dense(n, m), torch.isin(apart, found))


def test_a_distance_is_not_negative():
    with pytest.raises(EdgewiseError, match="distance"):
        distances([-1])


def test_a_predicate_of_too_many_pairs_is_refused():
    with pytest.raises(EdgewiseError, match="evaluated for all pairs"):
        where(lambda i, j: j <= i).count(1_000_000)
