"""What a table means: nulls, repeated rows, references, types; and all that is refused."""

import datetime
import decimal
import pickle
import uuid

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import data
from edgewise.errors import EdgewiseError, SeveralErrors

KEYS = {"a": "node", "b": "node"}


def one(columns, **spec):
    return data.read({"t": columns}, data.Schema(r=data.table("t", **spec)))


def refused(code, columns, **spec):
    with pytest.raises(EdgewiseError) as caught:
        one(columns, **spec)
    assert {error.code for error in caught.value.errors} == {code}
    assert caught.value.span is not None
    return caught.value


def test_one_number_is_a_scalar_and_several_are_a_vector():
    table = {"id": [5, 3], "x": [1.0, 2.0], "y": [3, 4]}
    assert one(table, keys=["id"], values=["x"]).inputs["r"].tolist() == [2.0, 1.0]
    assert one(table, keys=["id"], values=["x", "y"]).inputs["r"].tolist() == [[2, 4], [1, 3]]
    assert one(table, keys=["id"]).inputs["r"].keys.tolist() == [[0, 1]]
    assert one(table, keys=["id"], values=["x"]).names == {"r": (3, 5)}


def test_lists_are_vectors():
    table = {"id": [1, 0], "x": [[1.0, 2.0], [3.0, 4.0]], "y": [9.0, 8.0]}
    found = one(table, keys=["id"], values=["x", "y"]).inputs["r"]
    assert found.tolist() == [[3, 4, 8], [1, 2, 9]]
    refused("bad-column", {"id": [1, 0], "x": [[1.0], [3.0, 4.0]]}, keys=["id"], values=["x"])
    refused("bad-column", {"id": [1], "x": [[1.0, None]]}, keys=["id"], values=["x"])


def test_nulls():
    table = {"id": [1, 2, None], "x": [1.0, None, 3.0]}
    found = refused("missing-value", table, keys=["id"], values=["x"])
    assert len(found.errors) == 2
    assert one(table, keys=["id"], values=["x"], nulls="drop").inputs["r"].tolist() == [1.0]
    keyed = {"id": [1, 2], "x": [1.0, float("nan")]}
    assert one(keyed, keys=["id"], values=["x"], nulls={"x": 7}).inputs["r"].tolist() == [1, 7]
    refused("missing-value", table, keys=["id"], values=["x"], nulls={"x": 7})


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("sum", [3, 10]), ("mean", [3, 5]), ("min", [3, 4]), ("max", [3, 6]), ("count", [1, 2])],
)
def test_repeated_rows(choice, expected):
    table = {"a": [1, 0, 1], "b": [1, 0, 1], "x": [4.0, 3.0, 6.0]}
    found = one(table, keys=KEYS, values=["x"], duplicates=choice).inputs["r"]
    assert (found.keys.tolist(), found.values.tolist()) == ([[0, 1], [0, 1]], expected)
    assert "{'a': 1, 'b': 1}" in refused("duplicate-rows", table, keys=KEYS, values=["x"]).message
    assert one(table, keys=KEYS).inputs["r"].keys.tolist() == [[0, 1], [0, 1]]


def test_references():
    tables = {"n": {"id": [1, 2]}, "e": {"a": [1, 2, 9], "b": [2, 8, 1]}}
    node = data.table("n", keys=["id"])
    with pytest.raises(EdgewiseError, match="refers to 9"):
        data.read(tables, data.Schema(node=node, edge=data.table("e", keys=KEYS)))
    kept = data.Schema(node=node, edge=data.table("e", keys=KEYS, dangling="drop"))
    assert data.read(tables, kept).inputs["edge"].keys.tolist() == [[0], [1]]
    alone = data.read(tables, data.Schema(edge=data.table("e", keys=KEYS)))
    assert alone.names["node"] == (1, 2, 8, 9)


def test_a_number_can_stand_for_itself():
    found = one({"who": ["x", "x"], "time": [30, -7]}, keys={"who": "person", "time": int})
    assert found.inputs["r"].keys.tolist() == [[0, 0], [-7, 30]]
    refused("bad-column", {"time": ["noon"]}, keys={"time": int})


def test_labels():
    table = {"id": [3, 1, 2], "y": ["no", None, "yes"]}
    found = one(table, keys=["id"], label="y").labels["r"]
    assert (found.keys.tolist(), found.values.tolist()) == ([[1, 2]], [1, 0])
    assert found.classes == ("no", "yes")
    real = one({"id": [1, 2], "y": [0.5, 2.0]}, keys=["id"], label="y").labels["r"]
    assert real.values.tolist() == [0.5, 2.0]
    refused("duplicate-rows", {"id": [1, 1], "y": [0, 1]}, keys=["id"], label="y")


def test_keys_of_other_types():
    day, number = datetime.date(2026, 1, 2), uuid.UUID(int=5)
    assert one({"id": [day]}, keys=["id"]).names["r"] == ("2026-01-02",)
    assert one({"id": [str(number)]}, keys=["id"]).names["r"] == (str(number),)
    for column in ([1.5], [True], [b"x"], [decimal.Decimal("1.5")]):
        refused("bad-column", {"id": column}, keys=["id"])


def test_types_of_one_name_agree():
    tables = {"n": {"id": ["1"]}, "e": {"a": [1], "b": [1]}}
    schema = data.Schema(node=data.table("n", keys=["id"]), edge=data.table("e", keys=KEYS))
    with pytest.raises(SeveralErrors, match="int keys of type `node`"):
        data.read(tables, schema)


def test_no_rows():
    empty = {"a": np.zeros(0, dtype=np.int64), "b": np.zeros(0, dtype=np.int64), "x": np.zeros(0)}
    for choice in ("refuse", "sum", "count"):
        found = one(empty, keys=KEYS, values=["x"], duplicates=choice).inputs["r"]
        assert (found.keys.shape, found.values.shape) == ((2, 0), (0,))
    assert one(empty, keys={"a": "r"}, values=["x"]).inputs["r"].shape == (0,)


@pytest.mark.parametrize(
    "spec",
    [
        {"keys": "id"},
        {"keys": []},
        {"keys": ["a", "b"]},
        {"keys": {"a": 3}},
        {"keys": ["id"], "values": [3]},
        {"keys": ["id"], "nulls": "zero"},
        {"keys": ["id"], "nulls": {"other": 0.0}},
        {"keys": ["id"], "duplicates": "first"},
        {"keys": ["id"], "dangling": True},
        {"keys": ["id"], "where": ["age > 3"]},
    ],
)
def test_a_schema_is_checked_where_it_is_written(spec):
    with pytest.raises(EdgewiseError) as caught:
        data.table("t", **spec)
    assert caught.value.code == "bad-schema"
    assert "data.table" in str(caught.value)


def test_values_that_are_not_numbers():
    refused("bad-column", {"id": [1], "x": ["a"]}, keys=["id"], values=["x"])
    refused("bad-column", {"id": [1], "x": [float("inf")]}, keys=["id"], values=["x"])
    listed = data.one_hot("x", ("a", "b"))
    assert one({"id": [1], "x": ["b"]}, keys=["id"], values=[listed]).inputs["r"].tolist() == [
        [0, 1]
    ]
    refused("bad-column", {"id": [1], "x": ["c"]}, keys=["id"], values=[listed])


DATES = {
    "texts": ["2026-01-02", "2026-01-03T12:00:00", "2026-01-01T00:00+02:00", None],
    "pandas": pandas.to_datetime(
        ["2026-01-02 00:00", "2026-01-03 12:00", "2025-12-31 22:00", None]
    ).to_numpy(),
    "dates": [
        datetime.datetime(2026, 1, 2), datetime.datetime(2026, 1, 3, 12),
        datetime.datetime(2025, 12, 31, 22), None,
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", DATES)
def test_dates_are_days(kind):
    column = data.days("at", since="2026-01-01")
    read = {"keys": ["id"], "nulls": {"at": -9.0}}
    table = {"id": [1, 2, 3, 4], "at": DATES[kind]}
    found = one(table, values=[column], **read).inputs["r"]
    torch.testing.assert_close(found, torch.tensor([1.0, 2.5, -1 / 12, -9.0]))
    scaled = one(table, values=[data.standard(column)], **read).inputs["r"]
    assert abs(scaled[:3].mean()) < 1e-6
    assert abs(scaled[:3].std(correction=0) - 1) < 1e-6
    assert scaled[3] == -9
    error = refused("bad-column", table, values=["at"], **read)
    assert 'days("at")' in error.help


SHOP = {
    "people": {
        "id": ["a", "b", "c"], "x": [1.0, 2.0, 6.0], "town": ["n", "s", "n"],
        "v": [[1.0, 0.0], [3.0, 0.0], [5.0, 3.0]], "left": ["yes", "no", None],
    }
}  # fmt: skip
PEOPLE = data.Schema(
    person=data.table(
        "people",
        keys=["id"],
        values=[data.standard("x"), data.one_hot("town"), data.standard("v")],
        label="left",
    )
)


def test_rows_that_come_later_are_read_as_the_first_were():
    found = data.read(SHOP, PEOPLE)
    later = {
        "people": {"id": ["z", "b"], "x": [6.0, 2.0], "town": ["s", "s"],
                   "v": [[5.0, 3.0], [3.0, 0.0]], "left": ["yes", None]}
    }  # fmt: skip
    for schema in (found.schema, pickle.loads(pickle.dumps(found.schema))):
        again = data.read(later, schema)
        old = found.inputs["person"]
        assert torch.equal(again.inputs["person"][0], old[1])
        assert torch.equal(again.inputs["person"][1, [0, 3, 4]], old[2, [0, 3, 4]])
        assert again.labels["person"].values.tolist() == [1]
        assert again.labels["person"].classes == ("no", "yes")
        assert repr(again.schema) == repr(found.schema)
    assert not torch.equal(data.read(later, PEOPLE).inputs["person"][1], old[1])
    assert torch.equal(data.read(SHOP, found.schema).inputs["person"], old)
    for column, value in (("town", "w"), ("left", "maybe"), ("left", 1), ("v", [1.0])):
        other = {**later["people"], column: [value, value]}
        with pytest.raises(EdgewiseError) as caught:
            data.read({"people": other}, found.schema)
        assert caught.value.code == "bad-column"
    empty = data.read({"people": {name: [] for name in later["people"]}}, PEOPLE)
    assert data.read({"people": {name: [] for name in later["people"]}}, empty.schema).schema


def test_columns_without_spread_and_without_rows():
    table = {"id": [1, 2, 3], "x": [4.0, 4.0, None]}
    read = {"keys": ["id"], "values": [data.standard("x")], "nulls": {"x": 0.0}}
    assert one(table, **read).inputs["r"].tolist() == [0.0, 0.0, 0.0]
    assert one({"id": [], "x": []}, **read).inputs["r"].tolist() == []
    refused("bad-column", {"id": [1], "x": [float("inf")]}, **read)
    refused("bad-column", {"id": [1], "x": ["a"]}, keys=["id"], values=[data.days("x")])


ROWS = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.sampled_from(["x", "y", "ž", "'; DROP"]),
        st.floats(-10, 10, width=32),
    ),
    max_size=12,
)


@settings(max_examples=20)
@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows, draw):
    keys = {"a": "first", "b": "second"}

    def read(listed):
        columns = {
            "a": np.array([a for a, _, _ in listed], dtype=np.int64),
            "b": [b for _, b, _ in listed] or np.zeros(0, dtype=str),
            "x": np.array([x for _, _, x in listed], dtype=np.float64),
        }
        return one(columns, keys=keys, values=["x"], duplicates="sum")

    shuffled = draw.sample(rows, len(rows))
    first, second = read(rows), read(shuffled)
    assert first.names == second.names
    assert torch.equal(first.inputs["r"].keys, second.inputs["r"].keys)
    assert torch.equal(first.inputs["r"].values, second.inputs["r"].values)
    by_hand = {}
    for a, b, x in rows:
        by_hand[a, b] = by_hand.get((a, b), 0.0) + x
    index = first.inputs["r"].keys
    names = zip(
        first.decode("first", index[0]), first.decode("second", index[1]), strict=True
    ) if rows else []  # fmt: skip
    found = dict(zip(names, first.inputs["r"].values.tolist(), strict=True)) if rows else {}
    assert found == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.table(3, keys=["id"]),
        lambda: data.table("t", keys=["id"], label=3),
        lambda: data.table("t", keys=["id"], where=None),
        lambda: data.table("t", keys=["id"], values=None),
        lambda: data.table("t", keys=["id"], values=["x"], nulls={"x": "a"}),
        lambda: data.table("t", keys=["id"], values=["x"], nulls={"x": float("nan")}),
        lambda: data.one_hot("x", 3),
        lambda: data.days("x", since="yesterday"),
        lambda: data.days(3),
        lambda: data.standard(data.one_hot("x")),
        lambda: data.standard("x", 1.0),
        lambda: data.standard("x", 1.0, 0.0),
        lambda: data.standard("x", float("nan"), 1.0),
        lambda: data.standard("x", [1.0, 2.0], [1.0]),
        lambda: data.standard("x", "1", "2"),
        lambda: data.table("t", keys=["id"], classes=["a"]),
        lambda: data.table("t", keys=["id"], label="y", classes="ab"),
        lambda: data.one_hot("x", [[1]]),
        lambda: data.read({"t": {"id": [1]}}, data.Schema(r=data.table("t", keys=["id"])), dtype=3),
        lambda: data.triples(train=None),
    ],
)
def test_what_is_no_schema_is_refused(make):
    with pytest.raises(EdgewiseError) as caught:
        make()
    assert caught.value.code in ("bad-schema", "unreadable-source")


FRAME = pandas.DataFrame({"id": ["ann", "bob"], "age": [31.0, 27.0], "churned": [0, 1]})
LABELLED = data.Schema(p=data.table("people", keys=["id"], values="age", label="churned"))


@pytest.mark.parametrize(
    ("read", "help"),
    [
        (lambda: data.read(FRAME, LABELLED), '`data.read({"people": frame}, schema)`'),
        (lambda: data.read(LABELLED, {"people": FRAME}), "the source comes first"),
        (lambda: data.table("people", keys="email"), '`keys=["email"]`'),
        (
            lambda: data.read({"people": FRAME.drop(columns="churned")}, LABELLED),
            "`frame.assign(churned=None)`",
        ),
    ],
)
def test_a_slip_is_answered_in_a_line_with_what_to_write(read, help):
    with pytest.raises(EdgewiseError) as caught:
        read()
    assert help in caught.value.help
    assert "\n" not in caught.value.message  # no page of rows


def test_rows_to_predict_have_a_null_for_a_label():
    later = FRAME.drop(columns="churned").assign(churned=None)
    assert len(data.read({"people": later}, LABELLED).labels["p"].values) == 0


def test_integers_that_do_not_fit():
    refused("unreadable-source", {"id": [2**64]}, keys=["id"])
    large = np.array([2**63], dtype=np.uint64)
    assert one({"id": large}, keys=["id"]).names["r"] == (2**63,)
    refused("bad-column", {"id": large}, keys={"id": int})


def test_names_that_a_source_does_not_have():
    found = one({"id": ["a"]}, keys=["id"])
    for type, name in (("r", "b"), ("r", ["a"]), ("z", "a")):
        with pytest.raises(EdgewiseError, match="there is no"):
            found.number(type, name)
    for numbers in ([1], [-1], ["a"], torch.tensor([0.0]), torch.tensor([[0]])):
        with pytest.raises(EdgewiseError, match="is not the number"):
            found.decode("r", numbers)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pandas.DataFrame([[1, 2, 3]], columns=["id", "v", "v"]), "two columns `v`"),
        ({"id": ["\ud800"], "v": [1.0]}, "surrogates"),
    ],
)
def test_names_that_are_not_unique_and_halves_of_letters_are_refused(frame, message):
    schema = data.Schema(c=data.table("c", keys=["id"], values=["v"]))
    with pytest.raises(EdgewiseError, match=message) as caught:
        data.read({"c": frame}, schema)
    assert caught.value.code == "unreadable-source"


def test_a_column_of_texts_names_the_one_that_is_no_number(tmp_path):
    (tmp_path / "t.csv").write_text("id,age\na,1\nb,unknown\n")
    schema = data.Schema(r=data.table("t", keys=["id"], values=["age"]))
    with pytest.raises(EdgewiseError, match="row 2: 'unknown' is not a number"):
        data.read(tmp_path, schema)
    found = refused("bad-column", {"id": [1], "x": ["12"]}, keys=["id"], values=["x"])
    assert "row 1: '12' is a text" in str(found)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_line_with_other_fields_is_refused(tmp_path, separator):
    text = "id,age\na,1\nb\nc,2,3\n".replace(",", separator)
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(EdgewiseError, match="line 3: 1 field, and its header has 2") as caught:
        data.read(tmp_path, data.Schema(r=data.table("t", keys=["id"], values=["age"])))
    assert caught.value.code == "unreadable-source"


def test_a_type_is_not_the_text_int():
    with pytest.raises(EdgewiseError, match="without quotes"):
        data.table("t", keys={"at": "int"})


def test_a_table_of_molecules_has_a_column_of_them():
    pytest.importorskip("rdkit")
    with pytest.raises(EdgewiseError, match=r"table\[\"smiles\"\]"):
        data.molecules(pandas.DataFrame({"smiles": ["CC", "CO"]}))


def test_the_same_error_is_told_once():
    table = data.table("t", keys=["id"], values=["x"])
    with pytest.raises(EdgewiseError) as caught:
        data.read({"t": {"id": [1], "x": ["a"]}}, data.Schema(a=table, b=table))
    assert len(caught.value.errors) == 1


def test_values_that_do_not_fit_the_precision_are_refused():
    frames = {"a": {"id": [1, 2], "x": [1.0, 1e300]}}
    schema = data.Schema(a=data.table("a", keys=["id"], values=["x"]))
    with pytest.raises(EdgewiseError, match=r"row 2: 1e.300 is too large for torch.float32"):
        data.read(frames, schema)
    assert data.read(frames, schema, dtype=torch.float64).inputs["a"].tolist() == [1.0, 1e300]


@pytest.mark.parametrize("header", ["id,x,x", "id;x;X", 'id\tx\t"x"'])
def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path, header):
    separator = header[2]
    (tmp_path / "a.csv").write_text(f"{header}\n1{separator}2{separator}3\n")
    with pytest.raises(EdgewiseError, match=r"has two columns `[xX]`"):
        data.read(tmp_path / "a.csv", data.Schema(a=data.table("a", keys=["id"], values=["x"])))
