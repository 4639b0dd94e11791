"""Large numbers, long unions, high powers, far rows: right, and without running away."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import expressions, leaves

from edgewise import graphs
from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    Pattern,
    bigbird,
    causal,
    dilated,
    erdos_renyi,
    fixed,
    full,
    lsh,
    parse,
    philox,
    prefix,
    random_blocks,
    random_edges,
    ring,
    sparse_transformer,
    strided,
    syntax,
    window,
)
from edgewise.graphs.checks import LARGEST
from edgewise.graphs.errors import PatternTooDeep

MANY = 2000
EVERYTHING = [
    window(LARGEST), ring(LARGEST), prefix(LARGEST), dilated(LARGEST, 1), strided(1),
    graphs.blocks(LARGEST), graphs.global_tokens(LARGEST), random_edges(LARGEST, seed=0),
    random_blocks(LARGEST, 1, seed=0), bigbird(LARGEST), bigbird(1, LARGEST, window=LARGEST),
    graphs.longformer(LARGEST), full().restrict(queries=(0, LARGEST), keys=(0, LARGEST)),
]  # fmt: skip
DIAGONAL = [strided(LARGEST), dilated(LARGEST, LARGEST), graphs.blocks(1), window(0).power(LARGEST)]
NOTHING = [window(0).shift(LARGEST), full().restrict(keys=(LARGEST, None)), fixed(LARGEST)]


@pytest.mark.parametrize("n", [0, 1, 9])
@pytest.mark.parametrize(
    ("patterns", "wanted"), [(EVERYTHING, "full()"), (DIAGONAL, "window(0)"), (NOTHING, "~full()")]
)
def test_the_largest_parameters_mean_what_they_say(
    patterns: list[Pattern], wanted: str, n: int
) -> None:
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    for pattern in patterns:
        assert torch.equal(pattern.dense(n), parse(wanted).dense(n)), pattern
        assert torch.equal(pattern.contains(i, j, n), parse(wanted).dense(n)), pattern


def test_the_largest_numbers_of_tokens_are_counted() -> None:
    n = LARGEST
    assert full().count(n) == window(n).count(n) == n * n
    assert causal().count(n) == n * (n + 1) // 2
    assert window(1).count(n) == 3 * n - 2
    assert (full() - window(1)).count(n) == n * n - 3 * n + 2
    assert sparse_transformer(n, "fixed", width=n - 1).count(100) == causal().count(100)
    assert random_edges(3, seed=0).count(n) == 3 * n
    assert full().flops(n, heads=1000, d=1000) == 4 * 10**6 * n * n
    assert full().blocks(1000, block=LARGEST).dense().tolist() == [[1]]


def joined(patterns: list[Pattern]) -> Pattern:
    out = patterns[0]
    for pattern in patterns[1:]:
        out = out | pattern
    return out


def test_a_union_of_very_many() -> None:
    lines = joined([window(0).shift(k, 0) for k in range(MANY)])
    assert parse(repr(lines)) == lines
    assert eval(repr(lines), vars(graphs).copy()) == lines
    assert hash(lines) == hash(parse(repr(lines)))
    n = 300
    assert torch.equal(lines.dense(n), causal().dense(n))
    assert lines.contains(n - 1, 0, n)
    assert not lines.contains(0, 1, n)
    without = full()
    for k in range(n):
        without = without - window(0).shift(k, 0)
    assert torch.equal(without.dense(n), (~causal()).dense(n))


def test_the_same_pattern_is_a_member_once() -> None:
    twice = window(1) | causal()
    for _ in range(100):
        twice = twice | twice
        twice = twice & twice
    assert repr(twice) == "window(1) | causal()"
    assert (full() | (window(1) | causal())) == full() | window(1) | causal()


@given(leaves, st.integers(1, 40), st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=60)
def test_powers_are_hops(pattern: Pattern, hops: int, n: int, m: int) -> None:
    wanted, step = pattern.dense(n, m).double(), pattern.dense(m).double()
    for _ in range(hops - 1):
        wanted = (wanted @ step > 0).double()
    assert torch.equal(pattern.power(hops).dense(n, m), wanted.bool())
    assert parse(repr(pattern.power(hops))) == pattern.power(hops)


def test_very_high_powers() -> None:
    assert repr(window(1).power(999_999_999)) == "window(1).power(999999999)"
    assert window(1).power(999_999_999).count(100) == 100 * 100
    step = window(0).shift(1, 0)  # every token hears the one before it
    assert step.power(99).edges(100).T.tolist() == [[99, 0]]
    assert step.power(LARGEST).count(100) == 0
    turn = ring(1) - window(0)  # it never settles: even and odd tokens change places
    assert torch.equal(turn.power(10**9).dense(10), strided(2).dense(10))


def deepest(build: Callable[[Pattern], Pattern]) -> Pattern:
    """A pattern built upon itself again and again, as far as that goes."""
    pattern: Pattern = window(1)
    for _ in range(1000):
        try:
            pattern = build(pattern)
        except PatternTooDeep:
            return pattern
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    "build",
    [
        lambda p: p.compose(causal()),
        lambda p: p.compose(p),
        lambda p: ~p.T,
        lambda p: p.shift(1).restrict(keys=(1, None)),
        lambda p: (p | causal()) & window(2),
        lambda p: full() - p,
        lambda p: graphs.extra_global_tokens(1, p),
    ],
)
def test_an_expression_that_is_too_deep_or_too_large(build: Callable[[Pattern], Pattern]) -> None:
    pattern = deepest(build)
    assert repr(pattern)
    assert isinstance(hash(pattern), int)
    assert pattern.count(8) == int(pattern.dense(8).sum())
    assert pattern.contains(7, 7, 8) is bool(pattern.dense(8)[7, 7])


def test_shifts_add_up() -> None:
    pattern = causal()
    for _ in range(3000):
        pattern = pattern.shift(-1, 0)
    assert pattern == causal().shift(-3000, 0)
    assert window(1).shift(2).shift(-2) != window(1)  # what left the matrix does not come back


@given(expressions, st.integers(0, 12), st.integers(0, 12), st.integers(0, 9))
@settings(max_examples=80)
def test_some_rows_are_those_of_all(pattern: Pattern, n: int, m: int, first: int) -> None:
    first = min(first, n)
    rows = pattern.rows_between(n, m, first, n)
    assert torch.equal(rows.dense(), pattern.dense(n, m)[first:])


@pytest.mark.parametrize(
    "pattern",
    [random_edges(3, seed=1), erdos_renyi(0.1, seed=1), random_blocks(2, 7, seed=1)],
    ids=repr,
)
def test_far_rows_are_drawn_alone(pattern: Pattern) -> None:
    n, m = 200, 60
    assert torch.equal(pattern.shift(-150, 0).dense(50, m), pattern.dense(n, m)[150:])
    far = (pattern | window(1)).shift(-(10**8), 0)
    assert 0 < far.count(5, m) <= 5 * m
    assert far.dense(5, m).any(1).all() or isinstance(pattern, erdos_renyi)


def test_many_random_keys_are_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, limit = np.arange(40), np.arange(30, 70)
    few = philox.distinct(3, rows, 35, limit)
    monkeypatch.setattr(philox, "LINEAR_SEARCH", 0)
    monkeypatch.setattr(philox, "TABLE", 200)
    assert np.array_equal(philox.distinct(3, rows, 35, limit), few)


def test_counts_that_list_no_pairs() -> None:
    n = 1_000_000
    star = syntax([-1] + [0] * (n - 1), 2)
    assert star.count(n) == n * n
    rounds = lsh(np.stack([np.arange(n) % 10, np.arange(n) % 4, np.zeros(n, int)]))
    assert rounds.count(n) == n * n
    two = lsh(np.stack([np.arange(n) % 10, np.arange(n) % 4]))
    assert two.count(n) == n * n // 10 + n * n // 4 - n * n // 20
    assert two.contains(0, 20, n)
    assert not two.contains(0, 1, n)


@given(leaves, st.integers(1, 9), st.integers(0, 12), st.integers(0, 12))
@settings(deadline=None)
def test_powers_and_counts_are_those_of_the_matrix(
    pattern: Pattern, hops: int, n: int, m: int
) -> None:
    try:
        first, square = pattern.dense(n, m).double(), pattern.dense(m, m).double()
    except EdgewiseError:  # made for another number of tokens
        return
    for _ in range(hops - 1):
        first = (first @ square > 0).double()
    assert torch.equal(pattern.power(hops).dense(n, m), first > 0)
    assert (~pattern).count(n, m) == int((~pattern).dense(n, m).sum())
    assert pattern.T.count(m, n) == int(pattern.T.dense(m, n).sum())


def test_what_is_counted_needs_no_rows() -> None:
    assert (~random_edges(3, seed=0)).count(10**9) == 10**18 - 3 * 10**9
    assert random_edges(3, seed=0).T.count(10**9) == 3 * 10**9
    assert window(50).power(2000).count(100_000) == full().count(100_000)
    assert (window(5) & causal()).power(2000).count(100_000) == (
        (window(10_000) & causal()).count(100_000)
    )


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 8, 9, 12])
@pytest.mark.parametrize("n", [1, 24, 31])
def test_blocks_of_steps_are_those_of_the_matrix(step: int, n: int) -> None:
    found = strided(step).blocks(n, block=4)
    high = -(-n // 4)
    padded = torch.zeros(4 * high, 4 * high, dtype=torch.int64)
    padded[:n, :n] = strided(step).dense(n).long()
    each = padded.view(high, 4, high, 4).sum((1, 3))
    assert torch.stack([found.row.long(), found.index.long()]).equal(each.nonzero().T)
    assert found.full.equal(each[each > 0] == 16)


def test_how_large_blocks_are_says_nothing_of_how_large_an_expression_is() -> None:
    assert (graphs.blocks(60_000) | graphs.blocks(60_001)).count(10) == 100
    assert repr(graphs.blocks(1) | window(0)) == "blocks(1) | window(0)"


@pytest.mark.parametrize("kind", graphs.PATTERNS.values(), ids=lambda kind: kind.__name__)
def test_no_field_of_a_pattern_hides_what_all_patterns_have(kind: type[Pattern]) -> None:
    assert not set(kind.__dataclass_fields__) & set(dir(Pattern))  # type: ignore[attr-defined]
