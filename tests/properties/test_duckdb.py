"""The relational part against DuckDB: which atoms hold, from how many groundings, their sums."""

import random as python_random
from functools import cache

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V
from edgewise.language import nodes
from tests.properties.duckdb_oracle import derive, store
from tests.properties.evaluable import Drawn
from tests.properties.evaluable_conditions import Conditions, Relation

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

INPUTS = (
    Relation("a", (), (True,)),
    Relation("b", (), (True,)),
    Relation("e", (), (True, True)),
    Relation("f", (), (True, True)),
)
AGGREGATIONS = (F.sum_agg, F.sum_agg, F.avg_agg, F.max_agg, F.min_agg, F.count_agg)


@cache
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


class Datalog(Conditions):
    """Random rules over integers and scalars."""

    def rule(self, name: str, arity: int) -> nodes.Rule:
        self.bound = {}
        body = [self.atom() for _ in range(self.pick([1, 2, 2, 3]))]
        kinds = [self.negated, self.equated, self.compared, self.computed, self.hidden]
        body += [c for _ in range(self.pick([0, 1, 1, 2])) for c in self.pick(kinds)()]
        terms = [self.pick([*[V[name] for name in self.bound] * 4, 1]) for _ in range(arity)]
        functions = [self.pick([F.product, F.sum]), self.pick(AGGREGATIONS)]
        return (R[name](*terms) <= tuple(body)) | functions

    def atom(self) -> nodes.Atom:
        relation = self.pick(self.relations)
        terms = [
            self.pick([V.X, V.Y, V.Z, 2] if self.chance(2) else [V.X, V.Y]) for _ in relation.small
        ]
        self.bound |= {t.name: True for t in terms if isinstance(t, nodes.Variable)}
        return (R.hidden if self.chance(3) else R)[relation.name](*terms)


@st.composite
def datalog(draw):
    relations = list(INPUTS)
    maker = Datalog(Drawn(draw), relations)
    rules = []
    for at in range(draw(st.integers(1, 3))):
        arity = maker.pick([0, 1, 1, 2])
        rules.append([maker.rule(f"p{at}", arity) for _ in range(maker.pick([1, 1, 2]))])
        relations.append(Relation(f"p{at}", (), (True,) * arity))
    return rules, facts(draw(st.integers(0, 999)), maker.pick([0.5, 0.2, 0.8, 0.0, 1.0]))


def facts(seed: int, density: float) -> list[nodes.Atom]:
    random = python_random.Random(seed)
    keys = [(r, (i,)) for r in "ab" for i in range(6)]
    keys += [(r, (i, j)) for r in "ef" for i in range(6) for j in range(6)]
    kept = [pair for pair in keys if random.random() < density]
    return [R[name](*key)[random.randint(-40, 40) / 8] for name, key in kept]


def stored(given_facts: list[nodes.Atom]) -> duckdb.DuckDBPyConnection:
    for relation in INPUTS:
        store(database(), relation.name, len(relation.small), given_facts)
    return database()


@given(datalog())
@settings(deadline=None, max_examples=150)
def test_sums_and_counts_are_those_of_sql(case):
    layers, given_facts = case
    solution = Program([rule for layer in layers for rule in layer]).solve(given_facts)
    tables = stored(given_facts)
    for rules in layers:
        expected, count = derive(tables, list(dict.fromkeys(rules)))
        relation = rules[0].head.relation
        found = {a.terms: v.item() for a, v in solution.items() if a.relation == relation}
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert solution.computed.get(relation, 0) == count


edges = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)
LINEAR = R.t(V.X, V.Y) <= (R._t(V.X, V.Z), R._e(V.Z, V.Y))
SQUARE = R.t(V.X, V.Y) <= (R._t(V.X, V.Z), R._t(V.Z, V.Y))
REACHABLE = """
    WITH RECURSIVE t(x, y) AS (
        SELECT k0, k1 FROM e UNION SELECT t.x, e.k1 FROM t JOIN e ON t.y = e.k0
    )
"""


@pytest.mark.parametrize("step", [LINEAR, SQUARE], ids=["linear", "square"])
@given(pairs=edges)
@settings(deadline=None, max_examples=25)
def test_reachability_and_its_absence(step, pairs):
    program = Program(
        [
            R.t(V.X, V.Y) <= R._e(V.X, V.Y),
            step,
            R.n(V.X) <= R._e(V.X, V.Y),
            R.n(V.Y) <= R._e(V.X, V.Y),
            R.apart(V.X, V.Y) <= (R._n(V.X), R._n(V.Y), ~R.t(V.X, V.Y)),
            (R.reach(V.X) <= R.t(V.X, V.Y)) | [F.count_agg],
        ]
    )
    given_facts = [R.e(i, j) for i, j in sorted(pairs)]
    solution = program.solve(given_facts)
    tables = stored(given_facts)
    reached = set(tables.execute(f"{REACHABLE} SELECT x, y FROM t").fetchall())
    counts = dict(tables.execute(f"{REACHABLE} SELECT x, count(*) FROM t GROUP BY x").fetchall())
    nodes_ = {node for pair in pairs for node in pair}
    assert {a.terms for a in solution[R.t(V.X, V.Y)]} == reached
    assert {a.terms for a in solution[R.apart(V.X, V.Y)]} == {
        (x, y) for x in nodes_ for y in nodes_
    } - reached
    assert {a.terms[0]: v.item() for a, v in solution[R.reach(V.X)].items()} == counts


@given(pairs=edges, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_shortest_paths(pairs, seed):
    random = python_random.Random(seed)
    given_facts = [R.e(i, j)[random.randint(0, 40) / 8] for i, j in sorted(pairs)]
    program = Program(
        [
            (R.d(V.X, V.Y) <= R.e(V.X, V.Y)) | [F.min_agg],
            (R.d(V.X, V.Y) <= (R.d(V.X, V.Z), R.e(V.Z, V.Y))) | [F.min_agg],
            R.d / 2 | [F.min],
        ]
    )
    query = """
        WITH RECURSIVE d(x, y, v, hops) AS (
            SELECT k0, k1, v, 1 FROM e
            UNION SELECT d.x, e.k1, d.v + e.v, hops + 1 FROM d JOIN e ON d.y = e.k0 WHERE hops < 5
        )
        SELECT x, y, min(v) FROM d GROUP BY x, y
    """
    small = [fact for fact in given_facts if max(fact.terms) < 5]  # paths grow fast in SQL
    expected = {(x, y): v for x, y, v in stored(small).execute(query).fetchall()}
    solution = program.solve(small)
    found = {a.terms: v.item() for a, v in solution[R.d(V.X, V.Y)].items()}
    assert found == pytest.approx(expected)
