"""Joins in DuckDB give the groundings that a model joins in memory."""

import pytest
import torch

from edgewise import F, Program, R, V, data, rows
from edgewise.data.errors import BadJoin, DuplicateRows, MissingValue, UnreadableSource

pytest.importorskip("duckdb", reason="duckdb is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

RULES = {
    "two hops": R.out(V.X, V.Z) <= (R._e(V.X, V.Y), R._f(V.Y, V.Z)),
    "counted": R.out(V.X, V.Z) <= (R.e(V.X, V.Y), R.f(V.Y, V.Z)),
    "half counted": R.out(V.X) <= (R.e(V.X, V.Y), R._f(V.Y, V.Z)),
    "compared": R.out(V.X, V.Z) <= (R._e(V.X, V.Y), R._f(V.Y, V.Z), R.special.lt(V.X, V.Z)),
    "negated": R.out(V.X, V.Z) <= (R._e(V.X, V.Y), R._f(V.Y, V.Z), ~R.e(V.X, V.Z)),
    "a constant": R.out(V.X) <= (R._e(V.X, 3), R._f(V.X, V.Z)),
    "itself": R.out(V.X) <= R._e(V.X, V.X),
}


@pytest.fixture
def files(tmp_path):
    torch.manual_seed(0)
    found = {}
    for name in "ef":
        pairs = torch.unique(torch.randint(12, (2, 50)), dim=1)
        path = tmp_path / f"{name}'s.parquet"
        pq.write_table(pa.table({"from": pairs[0].numpy(), "to": pairs[1].numpy()}), path)
        found[name] = (pairs, path)
    return found


def test_names_that_differ_in_case_are_two_variables(files, tmp_path):
    pairs, path = files["e"]
    data.join(R.out(V.Xa, V.XA) <= R.e(V.Xa, V.XA), {"e": path}, tmp_path / "out.parquet")
    keys = rows(pq.read_table(tmp_path / "out.parquet").drop(["groundings"])).keys
    assert sorted(keys.T.tolist()) == sorted(pairs.T.tolist())


def test_columns_are_keys_without_nulls(files, tmp_path):
    pq.write_table(pa.table({"a": [1, None], "b": [2, 3]}), tmp_path / "null.parquet")
    for rule, table, error, says in (
        (R.out(V.X) <= R.e(V.X), files["e"][1], BadJoin, "`e` has 2 columns"),
        (R.out(V.X) <= R.e(V.X, V.Y), tmp_path / "null.parquet", MissingValue, "null"),
        (R.out(V.X) <= R.e(V.X, V.Y), files["e"][0], BadJoin, "is Tensor, not a path"),
    ):
        with pytest.raises(error, match=says):
            data.join(rule, {"e": table}, tmp_path / "out.parquet")


@pytest.mark.parametrize("name", RULES)
def test_it_joins_what_a_model_joins(name, files, tmp_path):
    rule, into = RULES[name], tmp_path / "out.parquet"
    paths = {n: path for n, (_, path) in files.items()}
    count = data.join(rule, paths, into, memory="100MB")
    found = pq.read_table(into)
    listed = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))
    ones = {n: rows(pairs, torch.ones(pairs.shape[1])) for n, (pairs, _) in files.items()}
    model = Program([rule | [F.product, F.sum_agg]]).compile(R.out)
    relation = model.rows(**{n: ones[n] for n in model.inputs})
    keys = relation.index.T.tolist()
    values = relation.data.flatten().tolist()
    expected = sorted((*key, round(value)) for key, value in zip(keys, values, strict=True))
    if all(getattr(atom, "hidden", True) for atom in rule.body):
        expected = [(*key[:-1], 1) for key in expected]
    assert [(*row[:-1], round(row[-1])) for row in listed] == expected
    assert count == len(listed)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (R.out(V.X) <= R._g(V.X, V.Y), "no table for `g`"),
        (R.out(V.X) <= R.e(V.X, V.Y)[2.0], "weight"),
        (R.out(V.X, 3) <= R._e(V.X, V.Y), "constant 3"),
        (R.out(V.X) <= (R._e(V.X, V.Y), R.special.next(V.X, V.Y)), "has no SQL"),
        ("two hops", "expected a rule"),
    ],
)
def test_what_has_no_sql_is_refused(rule, says, files, tmp_path):
    with pytest.raises(BadJoin, match=says):
        data.join(rule, {"e": files["e"][1]}, tmp_path / "out.parquet")


def test_what_duckdb_refuses_is_an_error_of_ours(tmp_path):
    (tmp_path / "e.parquet").write_bytes(b"not parquet")
    rule = R.out(V.X) <= R._e(V.X, V.Y)
    for path, options in ((tmp_path / "e.parquet", {}), (tmp_path / "no.parquet", {"memory": "x"})):
        with pytest.raises(UnreadableSource):
            data.join(rule, {"e": path}, tmp_path / "out.parquet", **options)
    with pytest.raises(UnreadableSource, match="there is no"):
        data.join(rule, {"e": tmp_path / "e.txt"}, tmp_path / "out.parquet")


def test_a_join_touches_no_other_file(files, tmp_path):
    out = tmp_path / "out.parquet"
    others = [tmp_path / "out.parquet.0.part", tmp_path / "out.parquet.tmp"]
    for other in others:
        other.write_text("mine")
    rule = R.out(V.X, V.Z) <= (R._e(V.X, V.Y), R._e(V.Y, V.Z))
    before = {*tmp_path.iterdir()}
    data.join(rule, {"e": files["e"][1]}, out)
    assert {*tmp_path.iterdir()} - before == {out}
    assert [other.read_text() for other in others] == ["mine", "mine"]
    with pytest.raises(UnreadableSource, match="No such file"):
        data.join(rule, {"e": files["e"][1]}, tmp_path / "no folder" / "out.parquet")


def test_a_key_that_a_table_has_twice_is_refused_or_counts_once(tmp_path):
    pq.write_table(pa.table({"a": [0, 0, 1], "b": [1, 1, 2]}), tmp_path / "e.parquet")
    rule = R.out(V.X) <= R.e(V.X, V.Y)
    with pytest.raises(DuplicateRows, match=r"the key \(0, 1\) twice"):
        data.join(rule, {"e": tmp_path / "e.parquet"}, tmp_path / "out.parquet")
    with pytest.raises(DuplicateRows, match="`duplicates` is 'sum'"):
        data.join(rule, {"e": tmp_path / "e.parquet"}, tmp_path / "o.parquet", duplicates="sum")
    data.join(rule, {"e": tmp_path / "e.parquet"}, tmp_path / "out.parquet", duplicates="once")
    assert pq.read_table(tmp_path / "out.parquet").sort_by("X").to_pydict() == {
        "X": [0, 1],
        "groundings": [1, 1],
    }


def test_strings_are_strings_again(tmp_path):
    odd = "o'clock; DROP TABLE x --"
    pq.write_table(pa.table({"a": [odd, "b", "b"], "b": [1, 2, 3]}), tmp_path / "e.parquet")
    e, out = {"e": tmp_path / "e.parquet"}, tmp_path / "out.parquet"
    assert data.join(R.out(V.Y) <= (R.e(odd, V.Y), ~R.e("b", V.Y)), e, out) == 1
    assert pq.read_table(out)["Y"].to_pylist() == [1]
    assert data.join(R.out(V.X, V.X) <= R.e(V.X, V.Y), e, out) == 2
    assert dict(zip(*pq.read_table(out).to_pydict().values(), strict=True)) == {odd: 1, "b": 2}
    assert data.join(R.out(V.X) <= (R._e(V.X, V.Y), R.e("gone", V.Y)), e, out) == 0


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (R.out(V.X) <= (R.e(V.X, V.Y), R.s(V.Y)), "`V.Y` is one of strings in `R.s.V.Y.`, of int"),
        (R.out(V.X) <= (R.e(V.X, V.Y), ~R.s(V.Y)), "`V.Y` is one of strings"),
        (R.out(V.X) <= R.e(V.X, "1"), "`'1'` is one of integers in `R.e.*, of strings"),
    ],
)
def test_columns_of_one_variable_are_of_one_kind(rule, says, tmp_path):
    tables = {"e": {"a": [0, 1], "b": [1, 2]}, "s": {"c": ["1", "2"]}}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    files = {name: tmp_path / f"{name}.parquet" for name in tables}
    with pytest.raises(BadJoin, match=says):
        data.join(rule, files, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_table_is_not_replaced_by_its_join(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BadJoin, match="would replace"):
        data.join(R.t(V.X) <= R.e(V.X, V.Y), {"e": path}, str(path))
    assert path.read_text() == "a,b\n1,2\n"
