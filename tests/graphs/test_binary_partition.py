"""BP-Transformer: every other token exactly once, and the types of the edges."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import binary_partition

sizes = st.integers(0, 70) | st.sampled_from([127, 128, 129, 200])


@given(k=st.integers(1, 9), tokens=sizes, causal=st.booleans())
@settings(deadline=None, max_examples=60)
def test_every_token_is_covered_exactly_once(k: int, tokens: int, causal: bool) -> None:
    pattern = binary_partition(k, tokens=tokens, causal=causal)
    i, j = pattern.edges(pattern.nodes)
    of_tokens = i < tokens
    first, last = pattern.covers(j[of_tokens])
    change = torch.zeros(tokens, tokens + 1, dtype=torch.int64)
    ones = torch.ones_like(first)
    change.index_put_((i[of_tokens], first), ones, accumulate=True)
    change.index_put_((i[of_tokens], last), -ones, accumulate=True)
    covered = change.cumsum(1)[:, :tokens]
    everything = torch.ones(tokens, tokens, dtype=torch.int64)
    assert torch.equal(covered, everything.tril() if causal else everything)


@given(k=st.integers(1, 5), tokens=st.integers(1, 40))
@settings(deadline=None, max_examples=30)
def test_a_span_hears_the_tokens_under_it(k: int, tokens: int) -> None:
    pattern = binary_partition(k, tokens=tokens)
    matrix = pattern.dense(pattern.nodes)
    for node in range(tokens, pattern.nodes):
        first, last = pattern.covers(torch.tensor([node]))
        assert matrix[node].nonzero()[:, 0].tolist() == list(range(int(first), int(last)))


def test_types_tell_level_place_and_side() -> None:
    pattern = binary_partition(2, tokens=16)
    edges, types = pattern.edges(31).T.tolist(), pattern.edge_types().tolist()
    pairs = {(i, j): kind for (i, j), kind in zip(edges, types, strict=True)}
    assert pairs[8, 8] == 4
    assert [pairs[8, 9], pairs[8, 10]] == [0, 2]
    assert [pairs[8, 7], pairs[8, 6]] == [1, 3]
    assert pairs[16, 0] == 5 + 4


def test_edges_of_the_published_setting() -> None:
    pattern = binary_partition(64, tokens=8192, causal=True)
    assert pattern.count(pattern.nodes) / 8192 == pytest.approx(371, abs=0.5)
