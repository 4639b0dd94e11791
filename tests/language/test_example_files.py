"""The published example and query files are read, fast, and their mistakes are shown."""

import os
import time
from pathlib import Path

import pytest

from edgewise import EdgewiseError, R
from edgewise.language.nodes import Fact
from edgewise.language.text_form.examples import Example, parse_examples, parse_queries

BESIDE = Path(__file__).parents[3] / "shared" / "data"
FOLDER = Path(os.environ.get("EDGEWISE_DATA", BESIDE)) / "relational" / "mutagenesis"
needs_data = pytest.mark.skipif(
    not FOLDER.exists(), reason="no mutagenesis files in EDGEWISE_DATA or ../shared/data"
)


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@needs_data
def test_mutagenesis_has_188_molecules() -> None:
    started = time.process_time()
    examples = parse_examples(read("examples.txt"), file="examples.txt")
    assert time.process_time() - started < 10
    assert len(examples) == 188
    assert sum(len(example.facts) for example in examples) == 20622
    assert examples[0].queries == ()
    assert examples[0].facts[:2] == (
        Fact(R.bond("d59_23", "d59_5", 0)),
        Fact(R.h_3("d59_23")),
    )
    place = examples[0].facts[1].place
    assert (place.file, place.line, place.column) == ("examples.txt", 1, 25)


@needs_data
def test_mutagenesis_queries_belong_to_the_examples() -> None:
    queries = parse_queries(read("queries.txt"))
    assert len(queries) == 188
    labels = [query.queries[0].atom.weight.value for query in queries]
    assert set(labels) == {0.0, 1.0}
    assert sum(labels) == 125


@needs_data
@pytest.mark.parametrize(("name", "count"), [("trainExamples.txt", 95), ("testExamples.txt", 93)])
def test_labelled_examples(name: str, count: int) -> None:
    examples = parse_examples(read(name))
    assert len(examples) == count
    assert examples[0].queries == (Fact(R.predict[1.0]),)
    assert all(example.facts for example in examples)


@needs_data
def test_the_two_halves_are_the_whole() -> None:
    whole = parse_examples(read("examples.txt"))
    halves = parse_examples(read("trainExamples.txt")) + parse_examples(read("testExamples.txt"))
    assert {example.facts for example in halves} == {example.facts for example in whole}


def test_facts_have_values_strings_and_comments() -> None:
    text = '[1, 2] q(a), p :- <0.5> b("x y", -3), c. % a comment\n:- d.\n'.replace(":- d", "d")
    first, second = parse_examples(text)
    assert first == Example(
        (Fact(R.q("a")[[1, 2]]), Fact(R.p)), (Fact(R.b("x y", -3)[0.5].fixed()), Fact(R.c))
    )
    assert second == Example((), (Fact(R.d),))


def test_nothing_gives_nothing() -> None:
    assert parse_examples("") == ()
    assert parse_queries(" % nothing\n") == ()


@pytest.mark.parametrize(
    "text",
    [
        "a(X).",
        "a(1)",
        "a(1) b(2).",
        "a(1), .",
        "a(1.5).",
        "p :- q :- r.",
        ":- a.",
        "a(" + "9" * 5000,
    ],
)
def test_mistakes_have_a_place(text: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        parse_examples(text)
    assert all(error.span and error.help for error in caught.value.errors)


def test_all_mistakes_are_shown_together() -> None:
    with pytest.raises(EdgewiseError) as caught:
        parse_examples("a(X).\nb(1).\nc(Y).\n")
    assert [error.span.line for error in caught.value.errors] == [1, 3]


def test_a_query_has_no_body() -> None:
    with pytest.raises(EdgewiseError, match="a query ends with"):
        parse_queries("1.0 predict :- a.")
