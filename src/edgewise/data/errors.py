"""Errors of sources and schemas."""

from edgewise.errors import EdgewiseError


class BadSchema(EdgewiseError):
    """A schema says, for each relation, its table, and which columns are keys and values."""

    code = "bad-schema"
    example = """\
from edgewise import data
data.Schema(bought=data.table("orders", keys=["customer", "product"]))"""
    instead = """\
from edgewise import data
keys = {"customer": "customer", "product": "product"}
data.Schema(bought=data.table("orders", keys=keys))"""


class UnreadableSource(EdgewiseError):
    """A source that is not there, is damaged, or went away while it was read gives no data at all:
    half of a database would be another database."""

    code = "unreadable-source"
    example = """\
from edgewise import data
data.read("no/such/file.parquet", data.Schema(person=data.table("file", keys=["id"])))"""
    instead = """\
from edgewise import data
data.read({"file": {"id": [1, 2]}}, data.Schema(person=data.table("file", keys=["id"])))"""


class UnknownTable(EdgewiseError):
    """A schema names tables of its source."""

    code = "unknown-table"
    example = """\
from edgewise import data
data.read({"people": {"id": [1, 2]}}, data.Schema(person=data.table("peple", keys=["id"])))"""
    instead = """\
from edgewise import data
data.read({"people": {"id": [1, 2]}}, data.Schema(person=data.table("people", keys=["id"])))"""


class UnknownColumn(EdgewiseError):
    """A schema names columns of its tables."""

    code = "unknown-column"
    example = """\
from edgewise import data
data.read({"people": {"id": [1, 2]}}, data.Schema(person=data.table("people", keys=["ID_"])))"""
    instead = """\
from edgewise import data
data.read({"people": {"id": [1, 2]}}, data.Schema(person=data.table("people", keys=["id"])))"""


class BadColumn(EdgewiseError):
    """Keys are integers or strings, values are numbers, and a column has one of them only."""

    code = "bad-column"
    example = """\
from edgewise import data
people = {"id": [1, 2], "age": ["young", "old"]}
data.read({"people": people}, data.Schema(
    person=data.table("people", keys=["id"], values=["age"])
))"""
    instead = """\
from edgewise import data
people = {"id": [1, 2], "age": ["young", "old"]}
data.read({"people": people}, data.Schema(
    person=data.table("people", keys=["id"], values=[data.one_hot("age")])
))"""


class MissingValue(EdgewiseError):
    """A null is neither 0 nor absent: say what it means."""

    code = "missing-value"
    example = """\
from edgewise import data
people = {"id": [1, 2], "age": [31.0, None]}
data.read({"people": people}, data.Schema(
    person=data.table("people", keys=["id"], values=["age"])
))"""
    instead = """\
from edgewise import data
people = {"id": [1, 2], "age": [31.0, None]}
data.read({"people": people}, data.Schema(
    person=data.table("people", keys=["id"], values=["age"], nulls={"age": 0.0})
))"""


class DuplicateRows(EdgewiseError):
    """An atom has one value: rows with equal keys are refused, or combined as the schema says."""

    code = "duplicate-rows"
    example = """\
from edgewise import data
orders = {"who": [1, 1], "what": [7, 7], "amount": [2.0, 3.0]}
keys = {"who": "person", "what": "product"}
data.read({"orders": orders}, data.Schema(
    bought=data.table("orders", keys=keys, values=["amount"])
))"""
    instead = """\
from edgewise import data
orders = {"who": [1, 1], "what": [7, 7], "amount": [2.0, 3.0]}
keys = {"who": "person", "what": "product"}
data.read({"orders": orders}, data.Schema(
    bought=data.table("orders", keys=keys, values=["amount"], duplicates="sum")
))"""


class DanglingReference(EdgewiseError):
    """A key refers to a row of the table that defines its type."""

    code = "dangling-reference"
    example = """\
from edgewise import data
tables = {"people": {"id": [1, 2]}, "knows": {"a": [1], "b": [3]}}
data.read(tables, data.Schema(
    person=data.table("people", keys=["id"]),
    knows=data.table("knows", keys={"a": "person", "b": "person"}),
))"""
    instead = """\
from edgewise import data
tables = {"people": {"id": [1, 2]}, "knows": {"a": [1], "b": [3]}}
data.read(tables, data.Schema(
    person=data.table("people", keys=["id"]),
    knows=data.table("knows", keys={"a": "person", "b": "person"}, dangling="drop"),
))"""


class UnknownName(EdgewiseError):
    """Only names that a source holds have a number."""

    code = "unknown-name"
    example = """\
from edgewise import data
people = data.Schema(person=data.table("people", keys=["id"]))
found = data.read({"people": {"id": ["ann"]}}, people)
found.number("person", "bob")"""
    instead = """\
from edgewise import data
people = data.Schema(person=data.table("people", keys=["id"]))
found = data.read({"people": {"id": ["ann"]}}, people)
found.number("person", "ann")"""


class BadLine(EdgewiseError):
    """A file is read as a whole or not at all: a line that was skipped would be missing data."""

    code = "bad-line"
    example = """\
from edgewise import data
data.molecules(["CCO", "C1CC"])"""
    instead = """\
from edgewise import data
data.molecules(["CCO", "C1CC1"])"""


class BadGraph(EdgewiseError):
    """A graph of another library has nodes, edges, and attributes that each of them has."""

    code = "bad-graph"
    example = """\
import networkx
from edgewise import data
data.from_networkx(networkx.path_graph(3), values=["age"])"""
    instead = """\
import networkx
from edgewise import data
data.from_networkx(networkx.path_graph(3))"""


class MemoryLimit(EdgewiseError):
    """A table on disk has the memory that it was given: what does not fit is not begun."""

    code = "memory-limit"
    example = """\
from edgewise import data
edge = data.on_disk({"edge": {"a": range(9), "b": range(9)}}, memory="100B")
reach = [R.h(V.X, V.Y) <= R._e(V.X, V.Y), R.h(V.X, V.Z) <= (R._h(V.X, V.Y), R._e(V.Y, V.Z))]
Program(reach).compile(R.h).ground(e=edge)"""
    instead = """\
from edgewise import data
edge = data.on_disk({"edge": {"a": range(9), "b": range(9)}}, memory="1MB")
reach = [R.h(V.X, V.Y) <= R._e(V.X, V.Y), R.h(V.X, V.Z) <= (R._h(V.X, V.Y), R._e(V.Y, V.Z))]
Program(reach).compile(R.h).ground(e=edge)"""


class DiskFull(EdgewiseError):
    """What memory does not hold is written to a temporary folder, which is then removed."""

    code = "disk-full"
    example = """\
from edgewise import data
edge = data.on_disk({"edge": {"a": range(9), "b": range(9)}})  # on a full disk"""
    instead = """\
from edgewise import data
edge = data.on_disk({"edge": {"a": range(9), "b": range(9)}}, folder=".")"""


class BadJoin(EdgewiseError):
    """DuckDB joins relations that are in files, with comparisons and negation."""

    code = "bad-join"
    example = """\
from edgewise import data
data.join(R.two(V.X, V.Z) <= (R._e(V.X, V.Y), R._f(V.Y, V.Z)), {"e": "e.parquet"}, "two.parquet")"""
    instead = """\
from edgewise import data
edge = data.on_disk({"edge": {"a": [0, 1], "b": [1, 2]}})
rule = R.two(V.X, V.Z) <= (R._e(V.X, V.Y), R._f(V.Y, V.Z))
Program([rule]).compile(R.two).ground(e=edge, f=edge)"""
