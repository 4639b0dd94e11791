"""Tables on disk as inputs: a model computes what it computes of the same rows in memory."""

import gc
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, W, data, rows
from edgewise.checks.atoms import ArityMismatch
from edgewise.data import disk_joins, errors
from edgewise.ground.index import KeyOutOfRange
from edgewise.ground.joins.disk import KeysOnDisk
from edgewise.inputs.errors import BadInput
from edgewise.language import nodes
from tests.ground.test_random_joins import ARITIES, rules

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")
X, Y, Z = V.X, V.Y, V.Z
EDGES = {"a": [0, 1, 1, 2, 4], "b": [1, 2, 3, 0, 4]}


def columns(keys, arity):
    found = list(zip(*keys, strict=True)) or [()] * arity
    return {f"k{at}": list(column) for at, column in enumerate(found)}


@st.composite
def tables(draw):
    """Keys of each relation: columns of integers or of strings, and which are tables on disk."""
    found = {}
    for name, arity in ARITIES.items():
        kinds = [draw(st.sampled_from(["integers", "integers", "strings"])) for _ in range(arity)]
        kinds = kinds if draw(st.booleans()) else ["integers"] * arity
        key = {"integers": st.integers(0, 5), "strings": st.sampled_from(["a", "bé", "c'"])}
        row = st.tuples(*[key[kind] for kind in kinds])
        found[name] = draw(st.lists(row, max_size=12, min_size=1, unique=True))
    return found, draw(st.sets(st.sampled_from(sorted(ARITIES)), min_size=1))


def narrow(connection, query, path, values=None):
    """As if a join of more than two keys of the first variable were too much."""
    ends = query.rpartition(" >= ")[2].split(" AND ")
    if ends[0].isdigit():
        low, high = int(ends[0]), int(ends[1].split(" < ")[1].split(" ")[0])
        if high - low <= 2:
            return WRITE(connection, query, path, values)
    raise duckdb.OutOfMemoryException("too much")


WRITE = disk_joins.write


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rules(), tables(), st.booleans())
def test_rows_are_those_of_the_reference(rule, case, in_pieces):
    given_keys, on_disk = case
    read = {literal.relation for literal in rule.body if isinstance(literal, nodes.Atom)}
    program = Program([rule])
    facts = [R[name](*key) for name in sorted(read) for key in given_keys[name]]
    expected = {str(atom) for atom in program.solve(facts)[rule.head]}
    model = program.compile(R.out)
    in_memory = {name: rows(given_keys[name]) for name in model.inputs}
    inputs = in_memory | {
        name: data.on_disk({name: columns(given_keys[name], ARITIES[name])})
        for name in model.inputs
        if name in on_disk
    }
    with ExitStack() as stack:
        wide = in_pieces and all(type(k) is int for keys in given_keys.values() for k in keys[0])
        if wide and rule.head.terms:
            stack.enter_context(mock.patch.object(disk_joins, "write", narrow))
        found = model.rows(model.ground(**inputs))
    again = model.rows(model.ground(**in_memory))
    assert {str(atom) for atom, _ in found.items()} == expected
    assert torch.equal(found.index, again.index)
    assert torch.equal(found.data, again.data)


def network():
    """Layers over edges with weights, a condition of two hops, and a family of weights by type."""
    return Program(
        [
            (R.h(X) <= (R.edge(Y, X), R.x(Y)["w":4, 3])) | [F.product, F.tanh],
            R.near(X, Z) <= (R._edge(X, Y), R._edge(Y, Z), R.special.neq(X, Z)),
            (R.g(X) <= (W.kind(V.T)[4, 4], R.h(Z), R._near(X, Z), R._of(Z, V.T))) | [F.product],
            (R.out(X) <= (R.g(X), ~R.gone(X))),
        ],
        domains={V.T: ["a", "b"]},
    )


@pytest.mark.parametrize("valued", [False, True])
def test_values_and_gradients_are_those_of_rows(valued):
    torch.manual_seed(0)
    edge = torch.unique(torch.randint(20, (2, 90)), dim=1)
    weight = torch.randn(edge.shape[1], dtype=torch.float64) if valued else None
    kinds = {"node": list(range(20)), "kind": [["a", "b"][at % 2] for at in range(20)]}
    table = {"from": edge[0].numpy(), "to": edge[1].numpy()}
    table |= {"w": weight.numpy()} if valued else {}
    shuffled = torch.randperm(edge.shape[1]).numpy()
    table = {name: column[shuffled] for name, column in table.items()}
    on_disk = {
        "edge": data.on_disk({"edge": table}, values=["w"] if valued else []),
        "of": data.on_disk({"of": kinds}),
        "gone": data.on_disk({"gone": {"node": [3, 11]}}),
    }
    in_memory = {
        "edge": rows(edge, weight),
        "of": rows(list(zip(*kinds.values(), strict=True))),
        "gone": rows(torch.tensor([[3, 11]])),
    }
    found = []
    for inputs in (on_disk, in_memory):
        model = network().compile(R.out, seed=0, dtype=torch.float64)
        x = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3).requires_grad_()
        relation = model.rows(model.ground(**inputs), x=x)
        relation.data.sin().sum().backward()
        slopes = [x.grad, *(p.grad for p in model.parameters())]
        found.append([relation.index, relation.data, *slopes])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_keys_are_read_where_a_rule_needs_all_of_them(monkeypatch):
    read = []
    monkeypatch.setattr(KeysOnDisk, "keys", property(lambda self: read.append(1) or self.held()))
    monkeypatch.setattr(KeysOnDisk, "held", lambda self: self.table.read(), raising=False)
    edge, keys = data.on_disk({"edge": EDGES}), rows(torch.tensor(list(EDGES.values())))
    joined = Program([R.out(X, Z) <= (R.edge(X, Y), R._edge(Y, Z), R.x(X))]).compile(R.out)
    joined.rows(joined.ground(edge=edge), x=torch.ones(5))
    assert not read
    rules = [R.reach(X, Y) <= R._edge(X, Y), R.reach(X, Z) <= (R._reach(X, Y), R._edge(Y, Z))]
    model = Program(rules).compile(R.reach)
    assert torch.equal(model.rows(edge=edge).index, model.rows(edge=keys).index)
    assert read


def test_what_a_rule_needs_in_memory_is_within_the_limit():
    edge = data.on_disk({"edge": {"a": range(1000), "b": range(1000)}}, memory="10KB")
    assert len(Program([R.out(X) <= R._edge(X, X)]).compile(R.out).rows(edge=edge)) == 1000
    rules = [R.out(X, Y) <= R._edge(X, Y), R.out(X, Z) <= (R._out(X, Y), R._edge(Y, Z))]
    with pytest.raises(errors.MemoryLimit, match=r"15.6 KiB, more than its 9.8 KiB[\s\S]*16MB|1MB"):
        Program(rules).compile(R.out).rows(edge=edge)


@pytest.mark.parametrize("kind", ["parquet", "csv", "database", "connection", "query", "frames"])
def test_every_kind_of_table(kind, tmp_path):
    connection = duckdb.connect(str(tmp_path / "base.duckdb"))
    connection.execute("CREATE TABLE edge AS SELECT unnest($a) AS a, unnest($b) AS b", EDGES)
    connection.execute("CREATE TABLE other AS SELECT 1 AS c")
    relation = connection.sql("FROM edge")
    source = tmp_path / f"[ed*ge]'s \".{kind}"
    if kind in ("parquet", "csv"):
        (relation.write_parquet if kind == "parquet" else relation.write_csv)(str(source))
    elif kind == "database":
        del relation
        connection.close()
        source = tmp_path / "base.duckdb"
    else:
        source = {"connection": connection, "query": relation, "frames": {"edge": EDGES}}[kind]
    edge = data.on_disk(source, "edge" if kind in ("database", "connection") else None)
    assert edge.keys.tolist() == [[0, 1, 1, 2, 4], [1, 2, 3, 0, 4]]
    if kind in ("database", "connection"):
        with pytest.raises(errors.UnknownTable, match=r"2 tables[\s\S]*name one: `edge, other`"):
            data.on_disk(source)
        with pytest.raises(errors.UnknownTable, match=r"no table `edgy`[\s\S]*did you mean `edge`"):
            data.on_disk(source, "edgy")


def test_names_and_strings_are_never_sql(tmp_path):
    odd = 'a"; DROP TABLE words; --'
    keys = ["'; DROP TABLE words --", "$c0", "%s", "", "ä\u0000", odd]
    table = {odd: keys, "select": keys[::-1]}
    edge = data.on_disk({odd: table}, odd, memory="100MB")
    model = Program([R.out(X, Z) <= (R._edge(X, Y), R._edge(Y, Z), R._edge(X, odd))]).compile(R.out)
    in_memory = rows(list(zip(*table.values(), strict=True)))
    assert list(model.rows(edge=edge)) == list(model.rows(edge=in_memory)) != []
    assert data.on_disk({odd: table}, keys=["select"]).keys.shape == (1, 6)


def test_duplicates_are_what_they_are_of_rows():
    table = {"a": [1, 0, 1, 1], "b": [2, 5, 2, 0], "w": [1.0, 2.0, 4.0, 8.0]}
    plain = {name: table[name] for name in "ab"}
    with pytest.raises(errors.DuplicateRows, match=r"the key \(1, 2\) twice[\s\S]*once"):
        data.on_disk({"e": plain})
    with pytest.raises(errors.DuplicateRows, match="'sum'"):
        data.on_disk({"e": plain}, duplicates="sum")
    with pytest.raises(errors.DuplicateRows, match="'count' of a table with values"):
        data.on_disk({"e": table}, values=["w"], duplicates="count")
    for duplicates, values in (("once", None), ("count", [1, 1, 2]), ("sum", [2, 8, 5])):
        named = ["w"] if duplicates == "sum" else []
        found = data.on_disk({"e": table if named else plain}, values=named, duplicates=duplicates)
        assert found.keys.tolist() == [[0, 1, 1], [5, 0, 2]]
        assert values == (None if found.values is None else found.values.tolist())
    counted = data.on_disk({"e": plain}, duplicates="count")
    with pytest.raises(BadInput, match="is a condition in every rule"):
        Program([R.out(X) <= R._e(X, Y)]).compile(R.out).ground(e=counted)


@pytest.mark.parametrize(
    ("table", "options", "error", "says"),
    [
        ({"a": [0, None], "b": [1, 2]}, {}, errors.MissingValue, "column `a` has 1 null"),
        ({"a": [0.5, 1.0]}, {}, errors.BadColumn, "column `a` is DOUBLE"),
        ({"a": [True]}, {}, errors.BadColumn, "column `a` is BOOLEAN"),
        ({"a": [0], "b": ["x"]}, {"values": ["b"]}, errors.BadColumn, "values are numbers"),
        ({"a": [0], "b": [None, 1.0][:1]}, {"values": ["b"]}, errors.BadColumn, "`b`"),
        ({"a": [-1]}, {}, KeyOutOfRange, "key -1"),
        ({"a": [1 << 40]}, {}, KeyOutOfRange, "key 1099511627776"),
        ({"a": [0]}, {"keys": ["c"]}, errors.UnknownColumn, "no column `c`"),
        ({"a": [0]}, {"keys": []}, errors.UnknownColumn, "no column of keys"),
        ({"a": [0]}, {"memory": "much"}, errors.UnreadableSource, "`memory` is 'much'"),
        ({"a": [0]}, {"memory": 5}, errors.UnreadableSource, "`memory` is 5"),
        ({"a": [0]}, {"duplicates": "twice"}, errors.DuplicateRows, "`duplicates` is 'twice'"),
        ({"a": [0]}, {"folder": "/no/folder"}, errors.UnreadableSource, "No such file"),
    ],
)
def test_what_is_no_table_of_keys_is_refused(table, options, error, says):
    with pytest.raises(error, match=says):
        data.on_disk({"e": table}, **options)


head, half = R.out(X), R.special.fn(lambda x: x // 2)
APART = {  # literals that share no variable with those of a table, or have none
    "a constant, and a negated atom": head <= (R.a(Y), R.n(1), R.m(X), ~R.x(Y)),
    "negated constants": head <= (R.a(0), R.m(X), ~R.x(1), ~R.x(3)),
    "a negated constant that holds": head <= (R.m(X), ~R.x(2)),
    "a constant beside a negated one": head <= (R.m(X), R.n(0), ~R.x(1)),
    "all that a function reads": head <= (R.m(X), R._x(Y), half(Y, Z)),
    "a head without keys": R.out <= (R._x(X), half(X, Z)),
}


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("on_disk", ["x", "n", "m", "ax", "amnx"])
def test_literals_that_share_no_variable_with_a_table(name, on_disk):
    rule = APART[name]
    read = {literal.relation for literal in rule.body if isinstance(literal, nodes.Atom)}
    keys = {"a": [0], "m": [3, 5, 6], "n": [0, 1], "x": [2]}
    values = {"a": [0.5], "m": [0.5, 0.5, 0.5]}
    facts = [
        R[table](key)[0.5] if table in values else R[table](key)
        for table in sorted(read)
        for key in keys[table]
    ]
    tables = {}
    for table in read & set(on_disk):
        columns = {"k": keys[table]} | ({"v": values[table]} if table in values else {})
        tables[table] = data.on_disk({table: columns}, values="v" if table in values else ())
    model = Program([rule]).compile(R.out)
    grounded = model.ground(facts=[f for f in facts if f.relation not in tables], **tables)
    solved = Program([rule]).solve(facts)
    expected = solved[rule.head] if rule.head.terms else {R.out: solved[R.out]}
    found = model.rows(grounded)
    assert {atom: value.item() for atom, value in found.items()} == pytest.approx(
        {atom: value.item() for atom, value in expected.items()}
    )


def test_an_empty_table_is_a_relation_without_rows():
    empty = data.on_disk(duckdb.sql("SELECT 1 AS a, 2 AS b WHERE false"))
    words = data.on_disk(duckdb.sql("SELECT 'x' AS a WHERE false"))
    rules = [R.out(X) <= R._edge(X, Y), R.out(X) <= (R._w(X), ~R.edge(X, X))]
    assert len(Program(rules).compile(R.out).rows(edge=empty, w=words)) == 0


def test_a_wrong_number_of_columns_is_refused_by_name():
    edge = data.on_disk({"edge": EDGES})
    with pytest.raises(ArityMismatch, match="`edge` has 1 term"):
        Program([R.out(X) <= R._edge(X)]).compile(R.out).ground(edge=edge)


def test_a_table_is_that_of_one_moment(tmp_path):
    path = tmp_path / "edge.csv"
    path.write_text("a,b\n0,1\n1,2\n")
    model = Program([R.out(X, Z) <= (R._edge(X, Y), R._edge(Y, Z), R.x(X))]).compile(R.out)
    grounded = model.ground(edge=data.on_disk(path))
    path.unlink()
    assert model.rows(grounded, x=torch.ones(3)).index.tolist() == [[0], [2]]
    with pytest.raises(errors.UnreadableSource, match="there is no"):
        data.on_disk(path)
    path.write_text("a,b\n0,1\n1,2\n")
    patched = mock.patch("edgewise.data.tables_on_disk._written", side_effect=_writes_into(path))
    with patched, pytest.raises(errors.UnreadableSource, match="changed while it was read"):
        data.on_disk(path)


def _writes_into(path):
    from edgewise.data.tables_on_disk import _written

    def written(*arguments):
        _written(*arguments)
        path.write_text("a,b\n5,5\n")

    return written


@pytest.mark.parametrize("kind", ["gone", "cut", "other"])
def test_a_file_that_breaks_while_it_is_read_gives_nothing(kind, tmp_path):
    path, folder = tmp_path / "edge.parquet", tmp_path / "work"
    folder.mkdir()
    duckdb.sql("SELECT range AS a, range AS b FROM range(300000)").write_parquet(str(path))

    def broken(relation, *arguments):
        if kind == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:1000] if kind == "cut" else b"PAR1")
        return written(relation, *arguments)

    from edgewise.data.tables_on_disk import _written as written

    patched = mock.patch("edgewise.data.tables_on_disk._written", side_effect=broken)
    with patched, pytest.raises(errors.UnreadableSource):
        data.on_disk(path, folder=folder)
    assert not list(folder.iterdir())


def test_files_go_with_the_data(tmp_path):
    model = Program([R.out(X, Z) <= (R._edge(X, Y), R._edge(Y, Z))]).compile(R.out)
    edge = data.on_disk({"edge": {"a": ["x", "y"], "b": ["y", "z"]}}, folder=tmp_path)
    grounded = model.ground(edge=edge)
    assert [one.name.rpartition("-")[0] for one in tmp_path.iterdir()] == ["edgewise-table"]
    assert len(model.rows(grounded)) == 1
    del edge, grounded, model
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("limit", [100_000, 600_000])
def test_a_full_disk_is_an_error_of_its_own(limit, tmp_path):
    """No file of this process may be larger: of the copy, or of the join."""
    pytest.importorskip("resource", reason="limits of files are those of POSIX")
    code = f"""
import resource, duckdb
from edgewise import Program, R, V, data
table = duckdb.sql("SELECT range * 7919 % 30011 AS a, range % 30011 AS b FROM range(30011)")
rule = R.out(V.X, V.Z) <= (R._edge(V.X, V.Y), R._edge(V.W, V.Z), V.X + V.W < 4000)
model = Program([rule]).compile(R.out)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    model.rows(edge=data.on_disk(table, folder={str(tmp_path)!r}, memory="100MB"))
except data.errors.DiskFull as error:
    print("refused", error.message.split(":")[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("refused"), done.stderr[-2000:]
    assert not list(Path(tmp_path).iterdir())


def test_a_join_larger_than_its_memory_is_joined(tmp_path):
    """The pairs of all nodes with the same remainder: 4 million of 20,000 rows."""
    table = duckdb.sql("SELECT range AS a, range % 100 AS b FROM range(20000)")
    node = data.on_disk(table, memory="70MB", folder=tmp_path)
    rule = R.out(X) <= (R._node(X, Z), R._node(Y, Z), V.X + V.Y < 300)
    found = Program([rule]).compile(R.out).rows(node=node)
    assert found.index[0].tolist() == [a for a in range(300) if a + a % 100 < 300]


def test_ground_says_how_tables_are_read(tmp_path):
    path = tmp_path / "edge.parquet"
    relation = duckdb.sql("SELECT 0 AS a, 1 AS b")
    relation.write_parquet(str(path))
    model = Program([R.out(X) <= R._edge(X, Y)]).compile(R.out)
    for table in (path, str(path), relation):
        with pytest.raises(BadInput, match=r"edge=edgewise\.data\.on_disk\(path\)"):
            model.ground(edge=table)
        assert len(model.rows(edge=data.on_disk(table))) == 1
