"""What ranks need of one another, against the boolean matrix of the graph."""

import numpy as np
import pytest
import torch
from rank_cases import GRAPHS, N

from edgewise import EdgewiseError
from edgewise.distributed import RowSizes, Shards
from edgewise.distributed.errors import BadShards
from edgewise.distributed.local_graphs import (
    chosen_rows,
    count_pairs,
    local_rows,
    on_keys,
    rows_of_tokens,
    rows_with_keys,
    without_rows,
)
from edgewise.distributed.needs import needs_of
from edgewise.distributed.stepped_runs import SteppedRuns
from edgewise.distributed.token_sets import EMPTY, TokenSet
from edgewise.graphs import causal, dilated, documents, strided, window
from edgewise.layouts import Trapezoids

ORDERS = [{}, {"step": 3}, {"step": 4}, {"paired": True}]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("ranks", [1, 2, 5, 45])
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_a_rank_fetches_the_keys_that_its_queries_attend_to(graph, ranks, order):
    shards, matrix = Shards(N, ranks, **order), graph.dense(N).numpy()
    for rank in range(ranks):
        own = shards.tokens(rank).list()
        assert (rows_of_tokens(graph, N, shards.tokens(rank)).dense().numpy() == matrix[own]).all()
        for split in (False, True):
            found = needs_of(graph, shards, rank, split=split)
            parts = found.parts.list()
            assert split or not len(parts)
            assert np.isin(parts, own).all()
            reached = matrix[np.setdiff1d(own, parts)].any(0)
            assert found.keys.list().tolist() == np.setdiff1d(np.flatnonzero(reached), own).tolist()


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("n", "ranks"), [(0, 3), (1, 2), (41, 1), (41, 4), (3, 5)])
def test_every_token_is_on_one_rank(n, ranks, order):
    shards = Shards(n, ranks, **order)
    every = [shards.tokens(rank).list() for rank in range(ranks)]
    assert sorted(np.concatenate(every).tolist()) == list(range(n))
    for rank, tokens in enumerate(every):
        assert (np.diff(tokens) > 0).all()
        assert (shards.owner(tokens) == rank).all()
        assert shards.count(rank) == len(tokens)


def test_cuts_and_axes_that_are_none_are_refused():
    for cuts in (4, (9,), (5, 4), "4", (1, 2)):
        with pytest.raises(EdgewiseError):
            Shards(8, 3 if cuts == (5, 4) else 2, cuts=cuts)
    with pytest.raises(BadShards):
        Shards(8, 2).take(torch.zeros(8), 0, 3)


@pytest.mark.parametrize(
    "sizes", [{"heads": -1}, {"d": 2.5}, {"heads": 3, "key_heads": 2}, {"dv": -4}, {"batch": "2"}]
)
def test_sizes_of_no_tensor_are_refused(sizes):
    with pytest.raises(EdgewiseError):
        RowSizes(**sizes)


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_local_graphs_are_parts_of_the_matrix(graph):
    rows, matrix = graph.rows(N), graph.dense(N).numpy()
    keys = TokenSet.of([2, 9, 30], [5, 20, 41])
    assert (on_keys(rows, keys).dense().numpy() == matrix[:, keys.list()]).all()
    singles = TokenSet.of_tokens(np.arange(0, N, 2))
    assert (chosen_rows(rows, singles).dense().numpy() == matrix[::2]).all()
    assert on_keys(rows, EMPTY).count() == 0
    empty = without_rows(rows, TokenSet.of([3, 10], [4, 30])).dense().numpy()
    assert not empty[3].any()
    assert not empty[10:30].any()
    assert (empty[30:] == matrix[30:]).all()
    assert rows_with_keys(rows).list().tolist() == np.flatnonzero(matrix.any(1)).tolist()


STEPPED = [
    *(strided(3), dilated(2, 3), causal() & strided(4), dilated(4, 2) | strided(4)),
    strided(4) - window(9),
    (causal() & strided(3)) - documents([15, 15, 11]),
    strided(6) & documents([12, 18, 11]),
]


@pytest.mark.parametrize("order", [*ORDERS, {"step": 6}, {"step": 12}], ids=str)
@pytest.mark.parametrize("graph", [*GRAPHS, *STEPPED], ids=repr)
def test_rows_of_some_queries_on_some_keys_are_those_of_the_matrix(graph, order):
    matrix = graph.dense(N).numpy()
    draw = np.random.default_rng(0).random
    for ranks in (1, 2, 5, 7):
        sets = [Shards(N, ranks, **order).tokens(rank) for rank in range(ranks)]
        sets += [EMPTY, *(TokenSet.of_tokens(np.flatnonzero(draw(N) < p)) for p in (0.1, 0.6))]
        for queries in sets:
            rows = local_rows(graph, N, queries)
            assert count_pairs(graph, N, queries) == matrix[queries.list()].sum()
            for keys in sets:
                found = rows(keys)
                expected = matrix[queries.list()][:, keys.list()]
                assert (found.n, found.m, found.count()) == (*expected.shape, expected.sum())
                assert (found.dense().numpy() == expected).all()


@pytest.mark.parametrize("step", [1, 64])
def test_pairs_of_strides_are_not_listed(step):
    """A rank of eight would list a billion of them; by class, its rows are those of a causal graph
    with a smaller step."""
    n = 1 << 20
    mine = Shards(n, 8, step=64).tokens(3)
    rows = local_rows(causal() & strided(64 * step), n, mine)(mine)
    assert rows.same_as((causal() & strided(8 * step)).rows(n // 8))


def test_sets_of_tokens_are_sets():
    generator = np.random.default_rng(0)
    for _ in range(50):
        a, b = (set(generator.integers(0, 30, size=12).tolist()) for _ in range(2))
        first, second = (TokenSet.of_tokens(np.array(sorted(x))) for x in (a, b))
        assert (first | second).list().tolist() == sorted(a | b)
        assert (first & second).list().tolist() == sorted(a & b)
        assert (first - second).list().tolist() == sorted(a - b)
        assert first.covers(np.arange(30)).tolist() == [x in a for x in range(30)]
        assert first.place(first.list()).tolist() == list(range(len(a)))


@pytest.mark.parametrize("count", [1, 7, 300])
def test_runs_at_regular_steps_are_the_keys_of_all_rows(count):
    draw = np.random.default_rng(count).integers
    for _ in range(20):
        step, height = draw(1, 6, count), draw(1, 8, count)
        start, slope = draw(0, 40, count), draw(0, 2, count)
        stop = start + step * draw(0, 10, count) + 1
        p = Trapezoids(
            *(np.zeros(count, np.int64), height, start, stop),
            *(slope, np.where(step > 1, slope, draw(0, 2, count) | slope), step),
        )
        keys = [
            {
                key
                for row in range(p.bottom[k])
                for key in range(
                    p.start[k] + row * p.dstart[k], p.stop[k] + row * p.dstop[k], p.step[k]
                )
            }
            for k in range(count)
        ]
        runs = SteppedRuns.of(p)
        assert set(runs.every().list().tolist()) == set.union(*keys)
        assert (runs.every().stop[:-1] < runs.every().start[1:]).all()
        for some in (TokenSet.of([3, 20], [11, 33]), TokenSet.of_tokens(np.arange(0, 160, 2))):
            chosen = set(some.list().tolist())
            assert runs.inside(some).tolist() == [len(one & chosen) for one in keys]
