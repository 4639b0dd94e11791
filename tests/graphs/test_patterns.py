"""Every pattern of the registry, by brute force over its pairs."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NAMES, cases

from edgewise import graphs
from edgewise.graphs import parse
from edgewise.layouts import Rows

every = pytest.mark.parametrize("name", NAMES)


def members(pattern: graphs.Pattern, n: int, m: int) -> torch.Tensor:
    i, j = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
    return pattern.contains(i, j, n, m)


def assert_normal(rows: Rows) -> None:
    """Progressions are sorted, disjoint, not empty and inside."""
    assert rows.top[0] == 0
    assert rows.top[-1] == rows.n
    for i in range(rows.n):
        keys = [key for piece in rows[i] for key in range(*piece)]
        assert all(start < stop for start, stop, _ in rows[i])
        assert [piece[0] for piece in rows[i]] == sorted(piece[0] for piece in rows[i])
        assert len(keys) == len(set(keys))
        assert all(0 <= key < rows.m for key in keys)


def block_kinds(matrix: torch.Tensor, block: int) -> torch.Tensor:
    n, m = matrix.shape
    padded = torch.zeros(-(-n // block) * block, -(-m // block) * block, dtype=torch.int64)
    padded[:n, :m] = matrix
    count = padded.view(-(-n // block), block, -(-m // block), block).sum((1, 3))
    return (count > 0).to(torch.int8) + (count == block * block).to(torch.int8)


@every
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_all_forms_are_one_set(name: str, data: st.DataObject) -> None:
    pattern, n, m = data.draw(cases(name))
    rows, dense = pattern.rows(n, m), pattern.dense(n, m)
    assert_normal(rows)
    assert torch.equal(members(pattern, n, m), dense)
    assert torch.equal(pattern.edges(n, m), dense.nonzero().T)
    assert pattern.count(n, m) == int(dense.sum())
    assert torch.equal(pattern.degrees(n, m), dense.sum(1))
    assert torch.equal(pattern.csr(n, m).rows().dense(), dense)
    assert torch.equal(pattern.T.dense(m, n), dense.T)
    block = data.draw(st.integers(1, 9))
    blocks = pattern.blocks(n, m, block=block)
    assert torch.equal(blocks.dense(), block_kinds(dense, block))
    assert torch.equal(blocks.T.dense(), blocks.dense().T)


@every
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_what_it_prints_builds_it(name: str, data: st.DataObject) -> None:
    pattern, _, _ = data.draw(cases(name))
    assert parse(repr(pattern)) == pattern
    assert eval(repr(pattern), vars(graphs).copy()) == pattern
    assert hash(parse(repr(pattern))) == hash(pattern)
    assert pickle.loads(pickle.dumps(pattern)) == pattern == copy.deepcopy(pattern)


def test_after_an_argument_left_out_the_next_is_named() -> None:
    assert repr(graphs.bigbird(random=0)) == "bigbird(random=0, seed=0)"


@every
@given(data=st.data())
@settings(deadline=None, max_examples=5)
def test_nothing_lies_outside(name: str, data: st.DataObject) -> None:
    pattern, n, m = data.draw(cases(name))
    assert not pattern.contains(n, 0, n, m)
    assert not pattern.contains(0, m, n, m)
    assert not pattern.contains(-1, 0, n, m)
    if n and m:
        assert pattern.contains(n - 1, m - 1, n, m) is bool(pattern.dense(n, m)[-1, -1])


@every
@given(data=st.data())
@settings(deadline=None, max_examples=5)
def test_shards_make_up_the_rows(name: str, data: st.DataObject) -> None:
    pattern, n, m = data.draw(cases(name))
    world = data.draw(st.integers(1, 5))
    parts = [pattern.shard(n, m, rank=rank, world=world).dense() for rank in range(world)]
    assert torch.equal(torch.cat(parts), pattern.dense(n, m))


SETS = {  # the definitions of FACTS section 1 and of the docstrings, once more, in plain Python
    "full()": lambda i, j, n: True,
    "causal()": lambda i, j, n: j <= i,
    "window(3)": lambda i, j, n: abs(i - j) <= 3,
    "ring(2)": lambda i, j, n: min((i - j) % n, (j - i) % n) <= 2,
    "dilated(2, 3)": lambda i, j, n: i - j in (-6, -3, 0, 3, 6),
    "strided(5)": lambda i, j, n: (i - j) % 5 == 0,
    "fixed(5, 2)": lambda i, j, n: j % 5 in (3, 4),
    "prefix(3)": lambda i, j, n: j < 3 or j <= i,
    "blocks(4)": lambda i, j, n: i // 4 == j // 4,
    "blocks(4, offset=3)": lambda i, j, n: (i - 3) // 4 == (j - 3) // 4,
    "clamped_window(2)": lambda i, j, n: abs(min(max(i, 2), n - 3) - j) <= 2,
    "global_tokens(2)": lambda i, j, n: i < 2 or j < 2,
    "global_tokens((1, 7))": lambda i, j, n: i in (1, 7) or j in (1, 7),
    "sparse_transformer(4)": lambda i, j, n: i - 4 <= j <= i or (j <= i and (i - j) % 4 == 0),
    "sparse_transformer(4, 'fixed', width=2)": lambda i, j, n: (
        j <= i and (j // 4 == i // 4 or j % 4 in (2, 3))
    ),
    "longformer(2)": lambda i, j, n: abs(i - j) <= 2 or i == 0 or j == 0,
    "extra_global_tokens(2, window(1))": lambda i, j, n: i < 2 or j < 2 or abs(i - j) <= 1,
}


@pytest.mark.parametrize("text", SETS)
@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_the_set_is_its_definition(text: str, n: int) -> None:
    wanted = {(i, j) for i in range(n) for j in range(n) if SETS[text](i, j, n)}
    assert set(map(tuple, parse(text).edges(n).T.tolist())) == wanted
