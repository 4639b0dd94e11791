"""Tables in CSV files as samples."""

import io

import pytest

from edgewise import EdgewiseError
from edgewise.neuralogic import Settings
from edgewise.neuralogic.core import Model, R, V
from edgewise.neuralogic.dataset import CSVDataset, CSVFile, Mode


def written(path, text):
    path.write_text(text)
    return path


def texts(dataset):
    return [(str(s.query), [str(fact) for fact in s.example]) for s in dataset.to_dataset().samples]


def test_rows_are_facts(tmp_path):
    edges = CSVFile("edge", written(tmp_path / "e.csv", "A,b\nb,\n\nc,d\n"))
    assert list(map(str, edges.to_logic_form())) == ["edge(a, b).", "edge(b, 0)."]
    file = io.StringIO('from;to;w;note\na;b;0.5;x\n"b;c";c;;y\n')
    columns = {"term_columns": ["from", "to"], "value_column": "w", "default_value": 2}
    valued = CSVFile("edge", file, ";", header=True, **columns).to_logic_form()
    assert [(str(f.terms[0]), f.weight) for f in valued] == [("a", 0.5), ("b;c", 2.0)]
    some = CSVFile("n", io.StringIO("a\nb\nc\nd\n"), skip_rows=1, n_rows=2, default_value=1)
    assert [str(f.terms[0]) for f in some.to_logic_form()] == ["b", "c"]
    mapped = CSVFile(
        "n", io.StringIO("a,yes\n"), value_column=1, term_columns=[0], value_mapper=len
    )
    assert mapped.to_logic_form()[0].weight == 3


def test_modes():
    def files():
        return [CSVFile("a", io.StringIO("1\n2\n")), CSVFile("b", io.StringIO("3\n4\n"))]

    def queries():
        return CSVFile("q", io.StringIO("x,1\ny,0\n"), value_column=1, term_columns=[0])

    def facts(**options):
        return [f for _, f in texts(CSVDataset(files(), **options))]

    assert facts() == [["a(1).", "a(2).", "b(3).", "b(4)."]]
    assert facts(csv_queries=queries()) == facts() * 2
    assert facts(mode=Mode.ZIP) == [["a(1).", "b(3)."], ["a(2).", "b(4)."]]
    per_file = [["a(1).", "a(2)."], ["b(3).", "b(4)."]]
    assert facts(csv_queries=queries(), mode=Mode.EXAMPLE_PER_SOURCE) == per_file


def test_a_model_trains_on_tables(tmp_path):
    edges = CSVFile("edge", written(tmp_path / "edges.csv", "a,b\nb,c\n"))
    values = CSVFile(
        "x", written(tmp_path / "x.csv", "b,2\nc,3\n"), value_column=1, term_columns=[0]
    )
    asked = CSVFile("h", io.StringIO("a,4\nb,6\n"), value_column=1, term_columns=[0])
    model = Model()
    model += R.h(V.X) <= (R.hidden.edge(V.X, V.Y), R.x(V.Y)[1.0])
    model.build(Settings())
    assert model.test(CSVDataset([edges, values], asked)) == [2.0, 3.0]


MISTAKES = [
    (lambda: CSVFile("a", "/nowhere.csv").to_logic_form(), "cannot read"),
    (
        lambda: CSVFile(
            "a", io.StringIO("x,y\n1,2\n"), header=True, term_columns=["z"]
        ).to_logic_form(),
        "no column `z`",
    ),
    (
        lambda: CSVFile("a", io.StringIO("1,2\n1\n"), value_column=1).to_logic_form(),
        "row 2 of .* has 1 columns",
    ),
    (
        lambda: CSVFile("a", io.StringIO("1,two\n"), value_column=1).to_logic_form(),
        "row 1 of .* has the value 'two'",
    ),
    (
        lambda: CSVDataset(
            [CSVFile("a", io.StringIO("1\n")), CSVFile("b", io.StringIO("1\n2\n"))], mode=Mode.ZIP
        ).to_dataset(),
        "1 and 2 rows of files",
    ),
    (
        lambda: CSVDataset(
            CSVFile("a", io.StringIO("1\n")), CSVFile("q", io.StringIO("")), Mode.ZIP
        ).to_dataset(),
        "1 and 0 samples and queries",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes(mistake, message):
    with pytest.raises(EdgewiseError, match=message) as caught:
        mistake()
    assert caught.value.code == "bad-sample"
    assert caught.value.help
