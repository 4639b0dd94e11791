"""Random patterns with the numbers of queries and keys they are made for."""

import dataclasses
import re
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from edgewise import graphs
from edgewise.graphs import PATTERNS, Pattern

Case = tuple[Pattern, int, int]
NAMES = (*PATTERNS, "grid")  # a grid is not a pattern before it has one for each axis

small, counts, seeds = st.integers(0, 9), st.integers(1, 9), st.integers(0, 2**40)
tokens = small | st.lists(st.integers(0, 40), max_size=3).map(tuple)
FIELDS = {
    "radius": small, "step": counts, "dilation": st.integers(1, 4), "tokens": tokens, "keys": small,
    "block": counts, "size": counts, "offset": small, "length": small, "p": st.floats(0, 1),
    "seed": seeds,
}  # fmt: skip


def built(name: str) -> st.SearchStrategy[Pattern]:
    """Any pattern whose fields are named as those of others, or are positive integers."""
    fields = dataclasses.fields(PATTERNS[name])
    return st.builds(
        PATTERNS[name], **{field.name: FIELDS.get(field.name, counts) for field in fields}
    )


def anywhere(patterns: st.SearchStrategy[Pattern], most: int = 64) -> st.SearchStrategy[Case]:
    """With n and m of any size."""
    sizes = st.tuples(st.integers(0, most), st.integers(0, most))
    sizes |= st.integers(0, most).map(lambda n: (n, n))
    return st.tuples(patterns, sizes).map(lambda case: (case[0], *case[1]))


def square(patterns: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Case]:
    return st.tuples(patterns, st.integers(0, 64)).map(lambda case: (case[0], case[1], case[1]))


def of_length(build: Callable[[list[int]], Pattern], items: st.SearchStrategy[list[int]]):
    return items.map(lambda found: (build(found), len(found), len(found)))


@st.composite
def forests(draw: st.DrawFn) -> list[int]:
    order = draw(st.permutations(range(draw(st.integers(0, 24)))))
    parent = [-1] * len(order)
    for place, token in enumerate(order[1:], start=1):
        parent[token] = draw(st.sampled_from([-1, order[place - 1], *order[:place]]))
    return parent


@st.composite
def partitions(draw: st.DrawFn) -> Case:
    pattern = graphs.binary_partition(
        draw(st.integers(1, 5)), tokens=draw(st.integers(0, 33)), causal=draw(st.booleans())
    )
    return pattern, pattern.nodes, pattern.nodes


@st.composite
def buckets(draw: st.DrawFn) -> Case:
    n, rounds = draw(st.integers(0, 40)), draw(st.integers(1, 3))
    row = st.lists(st.integers(0, 4), min_size=n, max_size=n)
    table = draw(st.lists(row, min_size=rounds, max_size=rounds))
    return graphs.lsh(np.array(table).reshape(rounds, n), chunk=draw(st.none() | counts)), n, n


@st.composite
def listed(draw: st.DrawFn, blocks: bool = False) -> Case:
    n, m, block = draw(st.integers(1, 20)), draw(st.integers(1, 20)), draw(counts)
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1))))
    if blocks:
        return graphs.from_blocks(pairs, block), n * block, m * block
    return graphs.from_edges(pairs), n, m


fixed = counts.flatmap(lambda step: st.builds(graphs.fixed, st.just(step), st.integers(1, step)))
sparse = counts.flatmap(
    lambda step: st.builds(
        graphs.sparse_transformer, st.just(step), st.sampled_from(["strided", "fixed"]),
        width=st.integers(1, step),
    )
)  # fmt: skip
even = st.integers(1, 5).map(lambda k: 2 * k)


@st.composite
def products(draw: st.DrawFn) -> Case:
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    axes = st.one_of(simple, fixed, built("blocks"), built("clamped_window"), built("ring"))
    pattern = graphs.grid(*sizes)(*(draw(axes) for _ in sizes))
    return pattern, pattern.tokens, pattern.tokens


simple = st.one_of(*(built(name) for name in ("full", "causal", "window", "dilated", "strided")))
CASES: dict[str, st.SearchStrategy[Case]] = {
    "clamped_window": square(built("clamped_window")),
    "barabasi_albert": square(st.builds(graphs.barabasi_albert, counts, seed=seeds)),
    "bigbird": anywhere(
        st.builds(
            graphs.bigbird, st.integers(1, 6), st.integers(0, 3), window=st.sampled_from([1, 3, 5]),
            global_first=st.integers(0, 2), global_last=st.integers(0, 2), seed=seeds,
            heads=st.just(2), head=st.integers(0, 1),
        )
    ),
    "binary_partition": partitions(),
    "distances": anywhere(st.builds(graphs.distances, st.lists(small, max_size=8))),
    "powers": anywhere(st.builds(graphs.powers, st.integers(2, 5))),
    "documents": st.lists(small, max_size=8).map(
        lambda lengths: (graphs.documents(lengths), sum(lengths), sum(lengths))
    ),
    "expander": square(st.builds(graphs.expander, even, seed=seeds)),
    "extra_global_tokens": anywhere(st.builds(graphs.extra_global_tokens, small, simple)),
    "fixed": anywhere(fixed),
    "from_blocks": listed(blocks=True),
    "from_edges": listed(),
    "grid": products(),
    "lsh": buckets(),
    "sparse_transformer": anywhere(sparse),
    "syntax": st.tuples(forests(), st.integers(0, 30)).map(
        lambda case: (graphs.syntax(*case), len(case[0]), len(case[0]))
    ),
    "tree": of_length(graphs.tree, forests()),
    "watts_strogatz": square(
        st.builds(
            graphs.watts_strogatz, even, st.floats(0, 1), seed=seeds,
            kind=st.sampled_from(["rewired", "added"]),
        )
    ),
}  # fmt: skip


def cases(name: str) -> st.SearchStrategy[Case]:
    """Random patterns of one kind; a kind with fields of common names needs no line above."""
    return CASES[name] if name in CASES else anywhere(built(name))


leaves = st.one_of(simple, fixed, built("global_tokens"), built("ring"), built("random_edges"))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a: ~a, inner),
        st.builds(lambda a: a.T, inner),
        st.builds(lambda a, r, k: a.shift(r, k), inner, st.integers(-5, 5), st.integers(-5, 5)),
        st.builds(
            lambda a, r, k: a.restrict(queries=r, keys=k),
            inner,
            st.tuples(small, st.none() | st.integers(0, 20)),
            st.tuples(small, st.none() | st.integers(0, 20)),
        ),
        st.builds(lambda a, b: a.compose(b), inner, inner),
        st.builds(lambda a, hops: a.power(hops), inner, st.integers(1, 9)),
    ),
    max_leaves=5,
)


def example(name: str) -> str:
    """The first example in the docstring of a pattern, such as `window(1)`."""
    found = re.search(rf">>> ({name}\(.*?\))[.\n]", str(PATTERNS[name].__doc__))
    assert found is not None, f"`{name}` has no example in its docstring"
    return found[1]
