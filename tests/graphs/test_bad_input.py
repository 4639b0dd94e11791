"""Whatever is given to a public function: an answer, or an error of ours with a next step."""

import dataclasses
import itertools
import math
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix, eye
from strategies import example

from edgewise import V, graphs
from edgewise.errors import EdgewiseError
from edgewise.graphs import PATTERNS, causal, from_block_mask, full, per_head, window
from edgewise.language.operators import NoTruthValue
from tests.refusals import assert_taken_or_refused

BAD: dict[str, Any] = {
    "None": None, "True": True, "-1": -1, "0": 0, "1.5": 1.5, "nan": math.nan, "inf": math.inf,
    "text": "a", "empty": [], "list": [1, 2], "nested": [[1, 2], [3, 4]], "ragged": [[1], [2, 3]],
    "pair": (3,), "dict": {}, "object": object(), "pattern": window(1), "heads": per_head(full()),
    "2**31": 2**31, "2**62": 2**62, "2**63": 2**63, "10**30": 10**30, "10**5000": 10**5000,
    "-10**30": -(10**30), "floats": torch.zeros(2, 3), "NaN tensor": torch.full((2, 2), math.nan),
    "bools": torch.ones(2, 2, dtype=torch.bool), "scalar": torch.tensor(3), "complex": 1j,
    "empty tensor": torch.zeros(0), "sparse": torch.eye(3).to_sparse(), "array": np.arange(3.0),
    "uint64": np.array([2**63], np.uint64), "meta": torch.empty(2, 2, device="meta"),
    "bfloat16": torch.zeros(2, 2, dtype=torch.bfloat16), "objects": np.array([None, "a"]),
}  # fmt: skip
GOOD: dict[str, tuple[tuple[Any, ...], dict[str, Any], int]] = {  # arguments, and for which n
    "barabasi_albert": ((2,), {"seed": 0}, 8),
    "bigbird": (
        (2, 1),
        {"window": 3, "global_first": 1, "global_last": 1, "seed": 0, "variant": "uniform",
         "heads": 2, "head": 1},
        8,
    ),
    "binary_partition": ((1,), {"tokens": 4, "causal": False, "clip": 2}, 7),
    "blocks": ((2,), {}, 8),
    "causal": ((), {}, 8),
    "compare": ((window(1),), {"n": 8}, 8),
    "dilated": ((2, 2), {}, 8),
    "where": ((lambda i, j: i >= j,), {}, 8),
    "documents": (([3, 5],), {}, 8),
    "erdos_renyi": ((0.5,), {"seed": 0}, 8),
    "expander": ((4,), {"seed": 0}, 8),
    "extra_global_tokens": ((1, window(1)), {}, 8),
    "fixed": ((3, 1), {}, 8),
    "from_block_mask": ((window(1).block_mask(8, block=4), 0), {}, 8),
    "from_blocks": (([(0, 1)], 2), {}, 8),
    "from_dense": ((torch.eye(8),), {}, 8),
    "from_edges": (([(0, 1)],), {"shape": (8, 8)}, 8),
    "from_networkx": ((networkx.path_graph(8),), {}, 8),
    "from_pyg": ((torch.tensor([[0], [2]]), 8), {}, 8),
    "from_scipy": ((eye(8),), {}, 8),
    "full": ((), {}, 8),
    "global_tokens": ((1,), {}, 8),
    "grid": ((2, 4), {}, 8),
    "longformer": ((1, 1), {"dilation": 2}, 8),
    "longformer_layers": (([1, 2], 1), {"dilations": [[1], [2]]}, 8),
    "lsh": (([[0, 1, 0, 1]],), {"chunk": 2}, 4),
    "lsh_of": ((torch.randn(8, 4), 2), {"rounds": 2, "chunk": 2, "seed": 0}, 8),
    "parse": (("window(1)",), {}, 8),
    "per_head": ((window(1), full()), {}, 8),
    "per_layer": ((window(1), full()), {}, 8),
    "per_sample": ((window(1), per_head(full(), full())), {}, 8),
    "prefix": ((2,), {}, 8),
    "random_blocks": ((1, 2), {"seed": 0}, 8),
    "random_edges": ((2,), {"seed": 0}, 8),
    "ring": ((1,), {}, 8),
    "sparse_transformer": ((3, "fixed"), {"width": 2}, 8),
    "strided": ((2,), {}, 8),
    "syntax": (([1, -1, 1], 1), {}, 3),
    "tree": (([-1, 0, 0],), {}, 3),
    "watts_strogatz": ((2, 0.5), {"kind": "added", "seed": 0}, 8),
    "window": ((1,), {}, 8),
}  # fmt: skip


def arguments(pattern: Any) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """The arguments that build a pattern."""
    values = [(f.name, getattr(pattern, f.name), f.kw_only) for f in dataclasses.fields(pattern)]
    named = {name: value for name, value, kw_only in values if kw_only}
    return tuple(value for _, value, kw_only in values if not kw_only), named, 8


GOOD |= {name: arguments(graphs.parse(example(name))) for name in PATTERNS if name not in GOOD}
METHODS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "contains": ((0, 1, 8, 8), {}),
    "rows": ((8, 8), {}),
    "rows_between": ((8, 8, 0, 4), {}),
    "dense": ((8, 8), {}),
    "edges": ((8, 8), {}),
    "count": ((8, 8), {}),
    "degrees": ((8, 8), {}),
    "csr": ((8, 8), {}),
    "blocks": ((8, 8), {"block": 4}),
    "block_mask": ((8, 8), {"block": 4, "device": "cpu"}),
    "predicate": ((8, 8), {"device": "cpu"}),
    "columns": ((8, 8), {}),
    "shard": ((8, 8), {"rank": 0, "world": 2}),
    "flops": ((8, 8), {"heads": 2, "d": 4}),
    "bytes": ((8, 8), {"heads": 2, "d": 4, "itemsize": 2}),
    "stats": ((8,), {"heads": 2, "d": 4}),
    "draw": ((8, 8), {}),
    "plot": ((8,), {"kind": "ring"}),
    "multiplicities": ((8, 8), {}),
    "log_bias": ((8, 8), {}),
    "shift": ((1, 2), {}),
    "restrict": ((), {"queries": (0, 4), "keys": (1, None)}),
    "compose": ((window(1),), {}),
    "power": ((3,), {}),
    "parts": ((), {}),
    "__or__": ((window(1),), {}),
    "__and__": ((window(1),), {}),
    "__sub__": ((window(1),), {}),
    "__call__": ((V.I, V.J), {}),
}
LISTS = {"rows_between"}  # for the library itself: sizes are checked by those who call it


def use(thing: Any, n: int) -> None:
    """Ask of what was built all that does not depend on more arguments."""
    if isinstance(thing, graphs.Pattern):
        for ask in (thing.count, thing.rows, lambda n: thing.contains(0, 0, n), thing.draw):
            assert_taken_or_refused(lambda ask=ask: ask(n))
        repr(thing), str(thing), hash(thing)


def spoiled(args: tuple[Any, ...], named: dict[str, Any], bad: Any) -> Any:
    """The arguments with each in turn replaced."""
    for at in range(len(args)):
        yield (*args[:at], bad, *args[at + 1 :]), named
    for name in named:
        yield args, named | {name: bad}


def test_every_public_function_is_swept() -> None:
    public = {
        name for name, thing in vars(graphs).items()
        if callable(thing) and not name.startswith("_") and name[0].islower()
        and getattr(thing, "__module__", "").startswith("edgewise.graphs")
        and name != "parse_pattern"
    }  # fmt: skip
    assert public == set(GOOD)
    named = {name for kind in graphs.Pattern.__mro__[:1] for name in vars(kind)}
    methods = {name for name in named if callable(getattr(graphs.Pattern, name))}
    methods = {name for name in methods if not name.startswith("_") and name != "T"}
    assert methods - {"compute_rows", "compute_rows_between", "trapezoids", "mask"} <= set(METHODS)


@pytest.mark.parametrize("name", GOOD)
def test_the_good_arguments_are_good(name: str) -> None:
    args, named, n = GOOD[name]
    built = getattr(graphs, name)(*args, **named)
    if isinstance(built, graphs.Pattern):
        assert built.count(n) == int(built.dense(n).sum())


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", GOOD)
def test_constructors(name: str, bad: str) -> None:
    args, named, n = GOOD[name]
    for given, words in spoiled(args, named, BAD[bad]):
        if not (name == "parse" and bad == "text"):
            use(
                assert_taken_or_refused(
                    lambda given=given, words=words: getattr(graphs, name)(*given, **words)
                ),
                n,
            )


OF = [window(1), window(1) | graphs.random_edges(2, seed=0), graphs.bigbird(2, 1)]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str, bad: str) -> None:
    if name in LISTS:
        return
    args, named = METHODS[name]
    for pattern, (given, words) in itertools.product(OF, spoiled(args, named, BAD[bad])):
        assert_taken_or_refused(
            lambda p=pattern, given=given, words=words: getattr(p, name)(*given, **words)
        )


@pytest.mark.parametrize("bad", BAD)
def test_heads_and_layers(bad: str) -> None:
    heads, layers = per_head(window(1), full()), graphs.per_layer(window(1), full())
    samples = graphs.per_sample(heads, causal())
    value = BAD[bad]
    for call in (
        lambda: heads[value], lambda: layers[value], lambda: heads(V.I, value),
        lambda: heads | value, lambda: heads & value, lambda: heads - value,
        lambda: heads.shift(value), lambda: heads.power(value), lambda: heads.compose(value),
        lambda: heads.restrict(queries=value), lambda: heads.dense(value),
        lambda: heads.count(value), lambda: heads.blocks(8, block=value),
        lambda: heads.block_mask(value), lambda: heads.stats(value), lambda: heads.draw(value),
        lambda: heads.plot(value), lambda: samples[value], lambda: samples(V.I, value),
        lambda: samples | value, lambda: samples & value, lambda: samples - value,
        lambda: samples.shift(value), lambda: samples.power(value), lambda: samples.compose(value),
        lambda: samples.restrict(queries=value), lambda: samples.dense(value),
        lambda: samples.count(value), lambda: samples.stats(value), lambda: samples.draw(value),
        lambda: samples.plot(value),
    ):  # fmt: skip
        assert_taken_or_refused(call)


@pytest.mark.parametrize("bad", BAD)
def test_what_only_some_patterns_have(bad: str) -> None:
    value = BAD[bad]
    assert_taken_or_refused(lambda: graphs.binary_partition(1, tokens=4).covers(value))
    assert_taken_or_refused(
        lambda: graphs.bigbird(2, variant="paper", seed=value if bad != "None" else 1)
    )
    assert_taken_or_refused(lambda: graphs.bigbird(2, variant="hf_train", heads=value).rows(64))
    assert_taken_or_refused(lambda: window(1).rows(8)[value])


SAID = {
    "window(2**63 - 1)": "bad-size",
    "window(2**62).count(5)": "bad-size",
    "full().count(4 * 10**9)": "bad-size",
    "strided(10**30)": "bad-size",
    "window(1).shift(2**62)": "bad-size",
    "window(1).shift('a')": "bad-size",
    "window(1).shift(True)": "bad-size",
    "window(1).shift(2**31 - 1).shift(2**31 - 1)": "bad-size",
    "window(1).shift(-(2**31 - 1)).rows(8)": "bad-size",
    "window(1).restrict(queries=3)": "bad-size",
    "window(1).restrict(queries=(3,))": "bad-size",
    "window(1).restrict(queries=(0, 2**62))": "bad-size",
    "window(1).power(0)": "bad-size",
    "window(1).contains(0.5, 1, 4)": "bad-size",
    "window(1).contains(torch.ones(2), 1, 4)": "bad-edges",
    "window(1).contains(torch.arange(2), torch.arange(3), 4)": "bad-edges",
    "window(1).block_mask(0)": "bad-size",
    "window(1).block_mask(8, device='foo')": "bad-choice",
    "window(1).stats(8, heads=0)": "bad-size",
    "window(1).stats(8, d=-1)": "bad-size",
    "window(1).flops(8, heads=-1)": "bad-size",
    "window(1).bytes(8, itemsize=0)": "bad-size",
    "full().dense(10**7)": "too-many-pairs",
    "full().edges(10**7)": "too-many-pairs",
    "random_edges(3, seed=0).rows(2**31 - 1)": "too-many-pairs",
    "lsh([[0] * 300_000]).rows(300_000)": "too-many-pairs",
    "syntax([-1] + [0] * 300_000, 2).rows(300_001)": "too-many-pairs",
    "tree([*range(1, 200_000), -1]).rows(200_000)": "too-many-pairs",
    "extra_global_tokens(1, 3)": "not-a-pattern",
    "extra_global_tokens(1, per_head(full()))": "not-a-pattern",
    "per_head(full())(V.I, V.J)": "not-a-pattern",
    "per_head(full())[3]": "bad-size",
    "per_sample(full())(V.I, V.J)": "not-a-pattern",
    "per_sample(full())[1]": "bad-size",
    "per_layer(full())[1]": "bad-size",
    "per_layer()": "size-mismatch",
    "longformer_layers([])": "bad-edges",
    "longformer_layers(3)": "bad-edges",
    "from_edges([(0, 9)], shape=(4, 4))": "edge-out-of-range",
    "from_pyg(torch.tensor([[0], [9]]), 4)": "edge-out-of-range",
    "from_edges([(0, 1)], shape=(2,))": "bad-size",
    "from_edges([(0, 1)], shape=3)": "bad-size",
    "from_edges([(0, 2**40)])": "bad-size",
    "from_networkx(3)": "bad-edges",
    "from_scipy(3)": "bad-edges",
    "from_pyg([[0], [1]])": "bad-edges",
    "from_block_mask(3)": "bad-edges",
    "from_dense(torch.tensor([[float('nan')]]))": "bad-edges",
    "tree([[1, 2]])": "bad-edges",
    "syntax([[1, 2]])": "bad-edges",
    "documents([[1, 2]])": "bad-edges",
    "documents([2**31 - 1, 2**31 - 1])": "bad-size",
    "lsh_of(torch.full((2, 2), float('nan')), 2, seed=0)": "bad-edges",
    "lsh_of(torch.ones(2, 2), 2, rounds=0, seed=0)": "bad-size",
    "lsh_of([1], 2, seed=0)": "bad-edges",
    "bigbird(variant='paper', seed=2**40)": "bad-size",
    "parse(None)": "bad-pattern",
    "window(1).block_mask(4, device='meta')": "bad-choice",
    "from_edges(torch.zeros(3, 2, dtype=torch.int64))": "bad-edges",
    "from_edges(np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]))": "bad-edges",
    "from_dense(np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]))": "bad-edges",
    "from_dense(np.array([[complex(float('nan'), 0)]]))": "bad-edges",
    "from_dense(torch.eye(2).to(torch.float8_e4m3fn))": "bad-edges",
    "from_scipy(csr_matrix([[float('nan'), 1.0]]))": "bad-edges",
    "tree([None])": "bad-size",
    "global_tokens(torch.tensor([True]))": "bad-edges",
    "global_tokens(np.zeros((2, 2), int))": "bad-size",
    "per_layer(full())(V.I, V.J)": "not-a-pattern",
    "window(2)(V.I)": "not-a-pair",
    "window(2)(V.I, V.J, V.K)": "not-a-pair",
}  # fmt: skip


@pytest.mark.parametrize("source", SAID)
def test_what_it_says(source: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        eval(source, vars(graphs) | {"torch": torch, "V": V, "np": np, "csr_matrix": csr_matrix})
    assert caught.value.code == SAID[source]
    assert caught.value.help


def test_a_mask_of_several_samples_or_heads_is_read_one_by_one() -> None:
    heads = per_head(window(1), full()).block_mask(8, block=4)
    assert torch.equal(from_block_mask(heads, 1).dense(8), full().dense(8))
    for head in (2, -1):
        with pytest.raises(EdgewiseError):
            from_block_mask(heads, head)


def test_small_integers_do_not_wrap_round() -> None:
    i, j = torch.tensor([0, 1], dtype=torch.uint8), torch.tensor([1, 0], dtype=torch.uint8)
    assert window(1).contains(i, j, 4).all()
    assert not window(1).contains(10**30, 0, 4)


def test_all_patterns_are_swept() -> None:
    assert set(PATTERNS) <= set(GOOD)


def test_numbers_of_numpy_are_numbers() -> None:
    pattern = window(np.int8(127))
    assert repr(pattern) == "window(127)"
    assert pattern.count(200) == window(127).count(200)


REASONS = {
    "tree([None])": "got [None]",
    "tree([10**30])": "too large",
    "from_edges(torch.zeros(3, 2, dtype=torch.int64))": "shape (3, 2): pairs are its rows",
    "from_blocks([(2, 2)], 10).count(20)": "use n = 21 or more",
    "per_head(full())[1]": "head 1 is out of range of 1 head",
    "parse('window(' + '1' * 5000 + ')')": "a number of 5,000 digits",
    "parse('window(1) # one\\n| full()')": "need parentheses",
}


@pytest.mark.parametrize("source", REASONS)
def test_why(source: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        eval(source, vars(graphs) | {"torch": torch})
    assert REASONS[source] in str(caught.value)


def test_advice_that_is_followed_works() -> None:
    assert graphs.from_blocks([(2, 2)], 10).count(21) == 1
    assert graphs.from_edges(torch.zeros(3, 2, dtype=torch.int64).T).count(1) == 1


@pytest.mark.parametrize(
    "tokens", [np.array([3, 0]), {0, 3}, frozenset([0, 3]), range(0, 4, 3), torch.tensor([0, 3])]
)
def test_tokens_may_be_listed_in_any_way(tokens: Any) -> None:
    assert graphs.global_tokens(tokens) == graphs.global_tokens((0, 3))
    assert graphs.global_tokens(torch.tensor(2)) == graphs.global_tokens(2)


def test_what_is_kept_cannot_be_written_to() -> None:
    rows = window(1).rows(5)
    for array in (rows.top, rows.ptr, rows.start, rows.stop, rows.step):
        with pytest.raises(ValueError, match="read-only"):
            array += 1
    assert window(1).rows(5).count() == 13


def test_layers_are_measured_and_plotted_one_by_one() -> None:
    layers = graphs.per_layer(window(1), per_head(full(), window(2)))
    assert [one.graph for one in layers.stats(8)] == ["window(1)", "full()", "window(2)"]
    assert sum(bool(axes.get_title()) for axes in layers.plot(8).axes) >= 3
    samples = graphs.per_sample(window(1), per_head(full(), window(2)))
    assert samples.stats(8) == layers.stats(8)
    assert sum(bool(axes.get_title()) for axes in samples.plot(8).axes) >= 3


@pytest.mark.parametrize(
    "spelling",
    [
        lambda a, b: a and b,
        lambda a, b: a or b,
        lambda a, b: not a,
        lambda a, b: b if a else a,
        lambda a, b: all([a, b]),
    ],
)
@pytest.mark.parametrize("graph", [window(3), window(3) | causal(), per_head(window(1), causal())])
def test_a_graph_has_no_truth_value(spelling, graph):
    with pytest.raises(NoTruthValue, match="`a & b` for `a and b`"):
        spelling(graph, causal())
