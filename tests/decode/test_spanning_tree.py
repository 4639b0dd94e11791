"""Spanning trees: valid for every score, and the best of all where all can be tried."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgewise import EdgewiseError
from edgewise.decode import spanning_tree


def is_tree(heads) -> bool:
    """One word is below the root, and every word is above none of those above it."""
    for at in range(1, len(heads) + 1):
        seen = set()
        while at:
            if at in seen:
                return False
            seen.add(at)
            at = heads[at - 1]
    return not len(heads) or list(heads).count(0) == 1


def best(scores) -> float:
    n = len(scores)
    trees = (heads for heads in product(range(n + 1), repeat=n) if is_tree(heads))
    return max(sum(scores[i, h] for i, h in enumerate(heads)) for heads in trees)


def squares(most, elements):
    sizes = st.integers(1, most)
    return sizes.flatmap(lambda n: arrays(np.float64, (n, n + 1), elements=elements))


@given(squares(5, st.floats(-50, 50, width=32)))
def test_the_tree_is_the_best_of_all(scores):
    heads = spanning_tree(scores)
    assert is_tree(heads)
    total = sum(scores[i, h] for i, h in enumerate(heads))
    assert total == pytest.approx(best(scores), abs=1e-9)


@given(squares(4, st.sampled_from([0.0, 1.0, 2.0, -np.inf])))
def test_equal_scores_and_impossible_arcs(scores):
    heads = spanning_tree(scores)
    assert is_tree(heads)
    wanted = best(scores)
    if np.isfinite(wanted):
        assert sum(scores[i, h] for i, h in enumerate(heads)) == wanted


@given(squares(40, st.floats(-1e3, 1e3, width=32)))
def test_many_words_are_a_tree(scores):
    assert is_tree(spanning_tree(scores))


def test_nested_cycles_of_many_words():
    n = 300
    scores = np.zeros((n, n + 1))
    for i in range(n):  # the best head of all but the first is the word before; of that the last
        scores[i, i if i else n] = 9.0
    scores[150, 0] = 1.0
    heads = spanning_tree(scores)
    assert is_tree(heads)
    assert heads[150] == 0
    assert heads[151] == 151


def test_no_words_and_one():
    assert spanning_tree([]) == []
    assert spanning_tree(np.zeros((0, 1))) == []
    assert spanning_tree([[-np.inf, 3.0]]) == [0]


@pytest.mark.parametrize(
    "scores",
    [
        [[1.0, 2.0], [3.0, 4.0]],
        [1.0, 2.0],
        [[np.nan, 1.0]],
        [[np.inf, 1.0, 0.0], [0.0, 1.0, 1.0]],
        "words",
        [[1.0], [2.0, 3.0]],
    ],
)
def test_other_scores_are_refused(scores):
    with pytest.raises(EdgewiseError) as found:
        spanning_tree(scores)
    assert found.value.code == "bad-scores"
