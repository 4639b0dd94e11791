"""Tables of databases as samples."""

import sqlite3

import pytest

from edgewise import EdgewiseError
from edgewise.neuralogic import Settings
from edgewise.neuralogic.core import Model, R, V
from edgewise.neuralogic.dataset import DBDataset, DBSource, Mode, PDDLDataset


def database(connect=sqlite3.connect):
    connection = connect(":memory:")
    connection.execute('CREATE TABLE "links; DROP TABLE x" ("from" TEXT, "to" TEXT, w REAL)')
    connection.execute(
        """INSERT INTO "links; DROP TABLE x" VALUES ('a', 'b', 0.5), ('b', 'c', 2)"""
    )
    connection.execute("CREATE TABLE ask (n TEXT, y REAL)")
    connection.execute("INSERT INTO ask VALUES ('a', 1), ('c', 0)")
    return connection


def sources():
    links = DBSource("edge", "links; DROP TABLE x", ["from", "to"], "w")
    return links, DBSource("h", "ask", ["n"], "y")


@pytest.mark.parametrize("kind", ["sqlite3", "duckdb"])
def test_tables_are_facts_and_queries(kind):
    connect = pytest.importorskip(kind).connect
    dataset = DBDataset(database(connect), *sources()).to_dataset()
    first, second = dataset.samples
    assert [(str(f.terms[0]), str(f.terms[1]), f.weight) for f in first.example] == [
        ("a", "b", 0.5),
        ("b", "c", 2.0),
    ]
    assert [(str(s.query.terms[0]), s.query.weight) for s in (first, second)] == [
        ("a", 1.0),
        ("c", 0.0),
    ]
    model = Model()
    model += R.h(V.X) <= R.edge(V.X, V.Y)
    model.build(Settings())
    assert len(model.build_dataset(DBDataset(database(connect), *sources())).samples) == 2


def test_added_sources_and_modes():
    links, ask = sources()
    dataset = DBDataset(database(), links, mode=Mode.ZIP)
    dataset.add_db_source(DBSource("n", "ask", ["n"], n_rows=2))
    dataset.set_queries(ask)
    assert [len(s.example) for s in dataset.to_dataset().samples] == [2, 2]


def test_what_is_not_there_is_named():
    with pytest.raises(EdgewiseError, match=r"cannot read `nothing`.*no such table"):
        DBDataset(database(), DBSource("e", "nothing", ["a"])).to_dataset()
    with pytest.raises(EdgewiseError, match="cannot read `ask`"):
        DBDataset(database(), DBSource("e", "ask", ["n", "m)--"])).to_dataset()
    for wrong in ([], "from"):
        with pytest.raises(EdgewiseError, match="the terms of `e`"):
            DBSource("e", "ask", wrong)
    with pytest.raises(EdgewiseError, match="is not an open connection"):
        DBDataset("shop.db", sources()[0]).to_dataset()
    closed = database()
    closed.close()
    with pytest.raises(EdgewiseError, match="is not an open connection: Cannot operate"):
        DBDataset(closed, sources()[0]).to_dataset()


def test_what_is_refused_says_what_to_do():
    with pytest.raises(EdgewiseError, match="PDDL"):
        PDDLDataset("domain.pddl", "problem.pddl")
