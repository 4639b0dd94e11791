"""The same tables in memory, in files, in DuckDB, SQLite and PostgreSQL give the same inputs."""

import sqlite3

import duckdb
import pandas
import polars
import psycopg
import pyarrow
import pytest
import torch
from postgres_server import programs, running
from pyarrow import feather, parquet

from edgewise import F, Program, R, V, data
from edgewise.errors import EdgewiseError

PEOPLE = {
    "id": ["bob", "ann", "cid", 'd"rop; --'],
    "age": [27, 31, None, 40],
    "height": [1.8, 1.625, 1.7, 0.1],
    "country": ["cz", "de", "cz", "%s"],
    "churned": [True, False, None, True],
}
ORDERS = {
    "who": ["bob", "ann", "bob", "cid", "bob"],
    "what": [7, 9, 7, 9, 11],
    "amount %": [2.1, 3.3, 4.7, 0.5, 0.1],
}
TABLES = {"people": PEOPLE, "orders": ORDERS}
SHOP = data.Schema(
    person=data.table(
        "people",
        keys=["id"],
        values=["age", "height", data.one_hot("country")],
        label="churned",
        nulls={"age": -1.0},
    ),
    bought=data.table(
        "orders",
        keys={"who": "person", "what": "product"},
        values=["amount %"],
        duplicates="sum",
        where=[data.column("amount %") > 0.2, data.column("who").one_of("ann", "bob", 'x" OR 1=1')],
    ),
)
TYPES = {"id": "TEXT", "who": "TEXT", "country": "TEXT", "age": "INTEGER", "what": "INTEGER"}
TYPES |= {"churned": "BOOLEAN", "height": "DOUBLE PRECISION", "amount %": "DOUBLE PRECISION"}


def fill(run, mark: str) -> None:
    """Create the tables by SQL."""
    for name, columns in TABLES.items():
        types = ", ".join(f'"{column}" {TYPES[column]}' for column in columns)
        run(f"CREATE TABLE {name} ({types})".replace("%", "%%" if mark == "%s" else "%"))
        for row in zip(*columns.values(), strict=True):
            run(f"INSERT INTO {name} VALUES ({', '.join([mark] * len(row))})", list(row))


@pytest.fixture(scope="module")
def server():
    if programs() is None:
        pytest.skip("no PostgreSQL server: install Debian's package `postgresql`")
    with running() as found:
        with psycopg.connect(found.address, autocommit=True) as connection:
            fill(lambda *query: connection.execute(*query, *([[]] * (len(query) == 1))), "%s")
        yield found


def frames(kind):
    return lambda folder: {name: kind(columns) for name, columns in TABLES.items()}


def written(suffix, write):
    def source(folder):
        for name, columns in TABLES.items():
            write(pyarrow.table(columns), folder / f"{name}{suffix}")
        return folder

    return source


def sqlite_file(folder):
    path = folder / "shop.db"
    with sqlite3.connect(path) as connection:
        fill(connection.execute, "?")
    return path


def duckdb_file(folder):
    path = folder / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        fill(connection.execute, "?")
    return path


def duckdb_connection(folder):
    connection = duckdb.connect()
    fill(connection.execute, "?")
    return connection


def sqlite_connection(folder):
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    fill(connection.execute, "?")
    return connection


def csv(table, path):
    table.to_pandas().to_csv(path, index=False)


def json_lines(table, path):
    table.to_pandas().to_json(path, orient="records", lines=True)


SOURCES = {
    "columns": frames(dict),
    "pandas": frames(pandas.DataFrame),
    "polars": frames(polars.DataFrame),
    "pyarrow": frames(pyarrow.table),
    "csv": written(".csv", csv),
    "json lines": written(".jsonl", json_lines),
    "parquet": written(".parquet", parquet.write_table),
    "feather": written(".feather", feather.write_feather),
    "sqlite": sqlite_file,
    "sqlite, open": sqlite_connection,
    "duckdb": duckdb_file,
    "duckdb, open": duckdb_connection,
}


def assert_shop(found):
    assert found.names["person"] == ("ann", "bob", "cid", 'd"rop; --')
    assert found.names["product"] == (7, 9)
    expected = torch.tensor(
        [
            [31, 1.625, 0, 0, 1],
            [27, 1.8, 0, 1, 0],
            [-1, 1.7, 0, 1, 0],
            [40, 0.1, 1, 0, 0],
        ]
    )
    torch.testing.assert_close(found.inputs["person"], expected, rtol=0, atol=0)
    assert found.inputs["bought"].keys.tolist() == [[0, 1], [1, 0]]
    assert found.inputs["bought"].values.tolist() == torch.tensor([3.3, 2.1 + 4.7]).tolist()
    assert found.labels["person"].keys.tolist() == [[0, 1, 3]]
    assert found.labels["person"].values.tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same(name, tmp_path):
    assert_shop(data.read(SOURCES[name](tmp_path), SHOP))


def test_so_does_a_server(server):
    assert_shop(data.read(server.address, SHOP))
    with psycopg.connect(server.address) as connection:
        assert_shop(data.read(connection, SHOP))


def test_predictions_are_equal_to_the_bit(server, tmp_path):
    rules = [
        R.product(V.P) <= (R.person(V.X)[3, 5], R.bought(V.X, V.P)),
        (R.score(V.X) <= (R.product(V.P)[1, 3], R._bought(V.X, V.P))) | [F.sigmoid],
    ]
    model = Program(rules).compile(R.score, seed=0)
    sources = [sqlite_file(tmp_path), duckdb_file(tmp_path), server.address]
    answers = [model(model.ground(**data.read(source, SHOP).inputs)) for source in sources]
    assert answers[0].data.tolist() == answers[1].data.tolist() == answers[2].data.tolist()


def code(source, schema):
    with pytest.raises(EdgewiseError) as caught:
        data.read(source, schema)
    assert caught.value.help
    return [error.code for error in caught.value.errors]


def test_all_unknown_names_are_reported_together(server, tmp_path):
    schema = data.Schema(
        a=data.table("peopel", keys=["id"]),
        b=data.table("people", keys=["Id"], values=["agee"]),
    )
    for source in (TABLES, sqlite_file(tmp_path), duckdb_file(tmp_path), server.address):
        assert code(source, schema) == ["unknown-table", "unknown-column", "unknown-column"]


def test_a_server_that_is_not_there():
    address = "postgresql://ann:secret@127.0.0.1:1/shop"
    with pytest.raises(EdgewiseError) as caught:
        data.read(address, SHOP)
    assert caught.value.code == "unreadable-source"
    assert "secret" not in str(caught.value.message)


def test_a_server_that_goes_away_while_it_is_read(monkeypatch):
    if programs() is None:
        pytest.skip("no PostgreSQL server: install Debian's package `postgresql`")
    from edgewise.data.sources.postgresql import PostgreSQL

    with running() as server:
        with psycopg.connect(server.address, autocommit=True) as connection:
            fill(lambda *query: connection.execute(*query, *([[]] * (len(query) == 1))), "%s")
        fetch = PostgreSQL.fetch

        def fetch_then_stop(self, *query):
            found = fetch(self, *query)
            if "people" in query[0]:
                server.stop()
            return found

        monkeypatch.setattr(PostgreSQL, "fetch", fetch_then_stop)
        assert code(server.address, SHOP) == ["unreadable-source"]


def test_a_table_of_another_schema(server):
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA IF NOT EXISTS "old ""shop"')
        connection.execute('CREATE TABLE IF NOT EXISTS "old ""shop".people AS SELECT 5 AS id')
    schema = data.Schema(person=data.table('old "shop.people', keys=["id"]))
    assert data.read(server.address, schema).names["person"] == (5,)


@pytest.mark.parametrize("name", ["shop.db", "shop.duckdb", "people.parquet", "people.csv"])
def test_a_damaged_file_is_refused(name, tmp_path):
    whole = {"shop.db": sqlite_file, "shop.duckdb": duckdb_file}.get(name)
    if whole is None:
        whole = SOURCES[name.rpartition(".")[2]]
    whole(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3 * 2] + b"\xff\x00\xfe" * 9)
    of = {"shop": SHOP, "people": data.Schema(person=SHOP["person"])}
    found = code(path, of[path.stem])
    assert found in (["unreadable-source"], ["unknown-table"], ["bad-column"], ["missing-value"])


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    closed = duckdb.connect()
    closed.close()
    for thing in (
        closed,
        "a\0b",
        "x" * 10_000,
        "postgresql://[::1",
        7,
        None,
        tmp_path,
        tmp_path / "a.txt",
        {"people": 3},
        {"people": {"id": [[1], 2]}},
    ):
        assert code(thing, SHOP) == ["unreadable-source"]


def test_a_path_with_a_star_is_one_file(tmp_path):
    folder = tmp_path / "a[b]*"
    folder.mkdir()
    written(".csv", csv)(folder)
    assert_shop(data.read(folder, SHOP))


@pytest.mark.parametrize(
    ("kind", "stored", "condition"),
    [
        ("TEXT", ("9", "20"), data.column("age") >= 18),
        ("REAL", (9.0, 20.0), data.column("age") > "x"),
        ("REAL", (9.0, 20.0), data.column("age").one_of("9", 20)),
        ("", (9, "20"), data.column("age") < 10),
    ],
)
def test_sqlite_compares_numbers_with_numbers(kind, stored, condition):
    """It would call every number smaller than every text, or compare both as texts."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE people (id TEXT, age {kind})")
    for at, value in enumerate(stored):
        connection.execute("INSERT INTO people VALUES (?, ?)", (f"p{at}", value))
    schema = data.Schema(person=data.table("people", keys=["id"], where=condition))
    with pytest.raises(EdgewiseError, match="in a condition") as caught:
        data.read(connection, schema)
    assert caught.value.code == "bad-column"


def test_a_closed_connection_is_opened_again():
    connection = sqlite3.connect(":memory:")
    connection.close()
    with pytest.raises(EdgewiseError, match="open it again"):
        data.read(connection, data.Schema(person=data.table("people", keys=["id"])))


@pytest.mark.skipif(programs() is None, reason="there is no PostgreSQL server here")
def test_materialised_views_and_temporary_tables_are_tables(server):
    schema = data.Schema(a=data.table("seen", keys=["id"], values=["x"]))
    hidden = data.Schema(a=data.table("hidden", keys=["id"]))
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("CREATE MATERIALIZED VIEW seen AS SELECT 1 AS id, 2.5 AS x")
        assert data.read(server.address, schema).inputs["a"].tolist() == [2.5]
        connection.execute("CREATE TEMPORARY TABLE seen AS SELECT 1 AS id, 7.5 AS x")
        assert data.read(connection, schema).inputs["a"].tolist() == [7.5]
        connection.execute("CREATE TABLE hidden (id INTEGER)")
        connection.execute("CREATE ROLE other LOGIN")
    with pytest.raises(EdgewiseError, match="permission denied for table hidden"):
        data.read(server.address.replace("tester@", "other@"), hidden)
