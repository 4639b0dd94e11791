"""Bad input: its own error, with a next step; and the text that does not parse, with a caret."""

import sys

import pytest
import torch

import edgewise.graphs as graphs
from edgewise import Program
from edgewise.errors import EdgewiseError
from edgewise.graphs import causal, errors, full, parse, per_head, text, tree, window

BAD = {
    "window(-1)": "bad-size",
    "window(2.5)": "bad-size",
    "window(True)": "bad-size",
    "dilated(1, 0)": "bad-size",
    "fixed(3, 4)": "bad-size",
    "expander(3, seed=0)": "bad-size",
    "watts_strogatz(3, 0.1, seed=0)": "bad-size",
    "bigbird(window=2)": "bad-size",
    "bigbird(variant='paper', window=5)": "bad-size",
    "bigbird(head=1)": "bad-size",
    "documents([3, -1])": "bad-size",
    "documents([3.5])": "bad-size",
    "erdos_renyi(8, seed=0)": "bad-probability",
    "random_edges(3)": "missing-seed",
    "erdos_renyi(0.5)": "missing-seed",
    "random_blocks(1, 2)": "missing-seed",
    "expander(4)": "missing-seed",
    "barabasi_albert(4)": "missing-seed",
    "watts_strogatz(4, 0.1)": "missing-seed",
    "bigbird(variant='google')": "bad-choice",
    "tree([1, 0])": "tree-cycle",
    "tree([-1, 1])": "tree-cycle",
    "syntax([1, 2, 0])": "tree-cycle",
    "tree([-1, 7])": "edge-out-of-range",
    "from_edges([(0, -1)])": "edge-out-of-range",
    "from_edges([(0, 1, 2)])": "bad-edges",
    "from_edges([(0, 1), (2,)])": "bad-edges",
    "lsh([1, 2])": "bad-edges",
    "per_head(3)": "not-a-pattern",
    "per_head()": "size-mismatch",
    "per_sample(3)": "not-a-pattern",
    "per_sample()": "size-mismatch",
    "per_sample(per_head(full()), per_head(full(), full()))": "size-mismatch",
    "per_sample(per_sample(full()))": "not-a-pattern",
    "per_head(per_sample(full()))": "not-a-pattern",
    "windw(3)": "bad-pattern",
    "window(3) | 1": "bad-pattern",
    "window(3).shfit(1)": "bad-pattern",
    "window(3": "bad-pattern",
    "window(radios=3)": "bad-pattern",
    "window": "bad-pattern",
    "3": "bad-pattern",
    "": "bad-pattern",
    "window(3) + full()": "bad-pattern",
    "__import__('os')": "bad-pattern",
    "window(3).__class__": "bad-pattern",
    "(lambda: 1)()": "bad-pattern",
    "full(*[1])": "bad-pattern",
    "full(**{})": "bad-pattern",
    "from_edges([[0, 1], ...])": "bad-pattern",
}
HOSTILE = {
    "~" * 10_000 + "full()": "1,000 operators",
    "full()" + ".T" * 20_000: "1,000 operators",
    "full()" + ".T" * 300: "nested more than 100 levels deep",
    "-" * 5000 + "1": "1,000 operators",
    "(" * 300 + "full()" + ")" * 300: "not an expression",
    "full(" * 150: "not an expression",
    "[" * 100_000: "not an expression",
    "full() | " * 50_000 + "full()": "1,000 operators",
    "window(1)" + ".compose(full())" * 300: "nested more than 100 levels deep",
    "window(1)" + ".shift(1).restrict()" * 60: "nested more than 100 levels deep",
    "a" * 2_000_000: "longer than 1,000,000 characters",
    "window(" + "9" * 5000 + ")": "a number of 5,000 digits",
    "window(" + "9" * 4000 + ")": "at most 2,147,483,647",
    "window(1).power(10**9)": "cannot be part of a pattern",
    "window(1).power(9999999999)": "at most 2,147,483,647",
    "window(radius=1, radius=2)": "is repeated",
    "per_layer(full()) | full()": "expected a pattern",
    "per_layer(full()).shift(1)": "expected a pattern",
    "window(1)(1, 2)": "cannot be called",
    "\x00": "not an expression",
    "\ud800": "not an expression",
}
ASKED = {
    "documents([3, 4])": (8, "size-mismatch"),
    "tree([-1, 0])": (3, "size-mismatch"),
    "lsh([[0, 1]])": (3, "size-mismatch"),
    "binary_partition(1, tokens=4)": (4, "size-mismatch"),
    "from_edges([(0, 9)])": (4, "edge-out-of-range"),
    "from_edges([(0, 1)], shape=(2, 2))": (3, "size-mismatch"),
    "from_blocks([(0, 1)], 2)": (2, "edge-out-of-range"),
    "bigbird(variant='paper')": (1000, "size-mismatch"),
}


def names() -> dict[str, object]:
    return vars(graphs).copy()


@pytest.mark.parametrize("source", BAD)
def test_bad_text_has_its_own_error_at_its_place(source: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        parse(source)
    assert caught.value.code == BAD[source]
    assert caught.value.help
    assert "^" in str(caught.value) or not source


@pytest.mark.parametrize("source", HOSTILE, ids=lambda source: ascii(source)[:20])
def test_hostile_text_is_refused_briefly(source: str) -> None:
    with pytest.raises(EdgewiseError, match=HOSTILE[source]) as caught:
        parse(source)
    assert caught.value.help
    assert "^" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("limit", [600, 1000, 2000, 10_000])
def test_what_a_text_may_nest_does_not_hang_on_the_recursion_limit(limit: int) -> None:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        for source in (
            "~" * 1001 + "full()",
            "full()" + ".T" * 1001,
            "full() | " * 1001 + "full()",
        ):
            with pytest.raises(EdgewiseError, match="more than 1,000 operators"):
                parse(source)
        assert len(parse(" | ".join(f"window({k})" for k in range(400))).members) == 400
        assert parse(f"tree([{'-1, ' * 3000}-1])") == tree([-1] * 3001)
        nested = "(" * 60 + "a" + ")" * 60
        assert Program.parse(f"h :- {nested}.") == Program.parse("h :- a.")
        with pytest.raises(EdgewiseError, match="nested more than 80 deep"):
            Program.parse("h :- " + "(" * 90 + "a" + ")" * 90 + ".")
    finally:
        sys.setrecursionlimit(usual)


def test_long_rows_of_operators_are_read() -> None:
    text = " | ".join(f"window({k})" for k in range(400))
    assert len(parse(text).members) == 400
    assert parse(" - ".join(["full()"] * 400)) == full() - full()
    assert parse("per_head(window(1), causal()).shift(1)") == per_head(window(1), causal()).shift(1)
    assert parse("causal() & per_head(window(1), window(2))")[1] == causal() & window(2)


@pytest.mark.parametrize("source", [s for s in BAD if BAD[s] != "bad-pattern"])
def test_bad_code_has_the_same_error(source: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        eval(source, names())
    assert caught.value.code == BAD[source]
    assert caught.value.help


@pytest.mark.parametrize("source", ASKED)
def test_a_size_that_does_not_fit(source: str) -> None:
    n, code = ASKED[source]
    with pytest.raises(EdgewiseError) as caught:
        parse(source).rows(n)
    assert caught.value.code == code
    assert caught.value.help


@pytest.mark.parametrize("n", [-1, 2.0, True, torch.tensor(3)])
def test_n_is_a_number_of_tokens(n: object) -> None:
    with pytest.raises(errors.BadSize):
        window(1).rows(n)  # type: ignore[arg-type]


def test_tokens_of_one_sequence_only() -> None:
    with pytest.raises(errors.SizeMismatch):
        parse("expander(4, seed=0)").rows(9, 8)


def test_as_many_heads_on_both_sides() -> None:
    with pytest.raises(errors.SizeMismatch):
        per_head(window(1)) | per_head(window(1), window(2))


def test_a_misspelt_name_is_pointed_at() -> None:
    with pytest.raises(text.BadPattern) as caught:
        parse("causal() & windw(3)")
    assert str(caught.value) == "\n".join(
        [
            "error[bad-pattern]: there is no pattern `windw`",
            "  --> <pattern>:1:12",
            "   |",
            "1  | causal() & windw(3)",
            "   |            ^^^^^",
            "help: did you mean `window`?",
        ]
    )


@pytest.mark.parametrize("source", ["causal & window(2)", "full"])
def test_a_pattern_without_arguments_needs_no_parentheses(source: str) -> None:
    assert repr(parse(source)) == source.replace("causal", "causal()").replace("full", "full()")
