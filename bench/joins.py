"""Joins beside DuckDB on one thread: the same query over the same power-law graph, time and memory.

PYTHONPATH=src:bench python bench/joins.py [--edges 100000 300000] [--case triangles ...]

Each runs in a process of its own: process time of the fastest run after the first (up to seven, in
two seconds), and the memory that the first adds to what the process has with the data loaded.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from measure import skip, write

from edgewise import Program, R, V

SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
X, Y, Z, W = V.X, V.Y, V.Z, V.W


@dataclass(frozen=True)
class Case:
    """One query in both languages, and the largest graph that it is run on."""

    rule: object
    sql: str
    most: int = SIZES[-1]


CASES = {
    "triangles": Case(
        R.out(X, Y, Z) <= (R._e(X, Y), R._e(Y, Z), R._e(Z, X)),
        "SELECT a.s, b.s, c.s FROM e AS a, e AS b, e AS c "
        "WHERE a.t = b.s AND b.t = c.s AND c.t = a.s",
    ),
    "nodes on a triangle": Case(
        R.out(X) <= (R._e(X, Y), R._e(Y, Z), R._e(Z, X)),
        "SELECT DISTINCT a.s FROM e AS a, e AS b, e AS c "
        "WHERE a.t = b.s AND b.t = c.s AND c.t = a.s",
    ),
    "nodes on a 4-cycle": Case(
        R.out(X) <= (R._e(X, Y), R._e(Y, Z), R._e(Z, W), R._e(W, X)),
        "SELECT DISTINCT a.s FROM e AS a, e AS b, e AS c, e AS d "
        "WHERE a.t = b.s AND b.t = c.s AND c.t = d.s AND d.t = a.s",
        1_000_000,
    ),
    "4-cycles": Case(
        R.out(X, Y, Z, W) <= (R._e(X, Y), R._e(Y, Z), R._e(Z, W), R._e(W, X)),
        "SELECT a.s, b.s, c.s, d.s FROM e AS a, e AS b, e AS c, e AS d "
        "WHERE a.t = b.s AND b.t = c.s AND c.t = d.s AND d.t = a.s",
        1_000_000,
    ),
    "two hops, both ends filtered": Case(
        R.out(X, Y, Z) <= (R._e(X, Y), R._e(Y, Z), R._f(X), R._g(Z)),
        "SELECT a.s, b.s, b.t FROM e AS a, e AS b, f, g "
        "WHERE a.t = b.s AND f.s = a.s AND g.s = b.t",
    ),
    "pairs of two hops, filtered": Case(
        R.out(X, Z) <= (R._e(X, Y), R._e(Y, Z), R._f(X), R._g(Z)),
        "SELECT DISTINCT a.s, b.t FROM e AS a, e AS b, f, g "
        "WHERE a.t = b.s AND f.s = a.s AND g.s = b.t",
    ),
    "two hops, in order": Case(
        R.out(X, Z) <= (R._e(X, Y), R._e(Y, Z), R._f(X), R.special.lt(X, Z)),
        "SELECT DISTINCT a.s, b.t FROM e AS a, e AS b, f "
        "WHERE a.t = b.s AND f.s = a.s AND a.s < b.t",
    ),
    "nodes at most two apart": Case(
        R.out(X, Y) <= (R._f(X), R._g(Y), abs(X - Y) <= 2),
        "SELECT f.s, g.s FROM f, g WHERE g.s BETWEEN f.s - 2 AND f.s + 2",
    ),
}


def power_law(edges: int, exponent: float = 2.5) -> np.ndarray:
    """Distinct edges (2, e) between nodes whose expected degrees follow a power law."""
    n, draw = edges // 8, np.random.default_rng(0)
    weight = np.arange(10, n + 10) ** (-1 / (exponent - 1))
    ends = [draw.choice(n, edges, p=weight / weight.sum()) for _ in range(2)]
    names = draw.permutation(n)
    codes = np.unique(names[ends[0]] * n + names[ends[1]])
    return np.stack([codes // n, codes % n])


def filters(edges: int) -> dict[str, np.ndarray]:
    n, draw = edges // 8, np.random.default_rng(1)
    return {name: np.unique(draw.choice(n, max(n // 200, 1))) for name in "fg"}


def rss() -> int:
    """The most memory that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def relations(case: Case, edges: int) -> dict[str, np.ndarray]:
    """The data that the rule reads, each (arity, rows)."""
    found = {"e": power_law(edges), **{k: v[None] for k, v in filters(edges).items()}}
    return {name: table for name, table in found.items() if f"{name}(" in str(case.rule)}


def edgewise(case: Case, tables: dict[str, np.ndarray]) -> Callable[[], int]:
    model = Program([case.rule]).compile(R.out)
    data = {name: torch.from_numpy(table) for name, table in tables.items()}
    return lambda: len(model.rows(model.ground(**data)))


def duck(case: Case, tables: dict[str, np.ndarray]) -> Callable[[], int]:
    try:
        import duckdb
    except ImportError:
        skip("needs duckdb")
    base = duckdb.connect(config={"threads": 1, "temp_directory": ""})
    for name, table in tables.items():
        base.register("columns", dict(zip("st", table, strict=False)))
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM columns")

    def run() -> int:
        base.execute(f"CREATE OR REPLACE TABLE out AS {case.sql}")
        return int(base.execute("SELECT count(*) FROM out").fetchone()[0])

    return run


SYSTEMS = {"edgewise": edgewise, "duckdb": duck}


def measured(system: str, name: str, edges: int) -> dict[str, object]:
    """In this process: what one of the two takes."""
    torch.set_num_threads(1)
    case = CASES[name]
    SYSTEMS[system](case, relations(case, 1_000))()  # imports and first use
    run = SYSTEMS[system](case, relations(case, edges))
    before = rss()
    rows = run()
    memory, times, begin = rss() - before, [], time.process_time()
    while not times or (len(times) < 7 and time.process_time() - begin < 2):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return {"rows": rows, "cpu_s": round(min(times), 4), "mib": memory >> 20}


def apart(system: str, name: str, edges: int, seconds: int = 120) -> dict[str, object]:
    """The same in a new process; the last line of an error where it fails."""
    command = [sys.executable, __file__, "--one", system, "--case", name, "--edges", str(edges)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {seconds} s"}
    last = (done.stdout.splitlines() or [""])[-1]
    return json.loads(last) if last.startswith("{") else {"error": done.stderr[-300:]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--edges", type=int, nargs="*", default=SIZES)
    parser.add_argument("--case", nargs="*", default=list(CASES))
    parser.add_argument("--one", choices=SYSTEMS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, options.case[0], options.edges[0])))
        return
    found = []
    for edges in sorted(options.edges):
        for name in (name for name in options.case if edges <= CASES[name].most):
            row = {"case": name, "edges": edges, **{s: apart(s, name, edges) for s in SYSTEMS}}
            counts = {row[system].get("rows") for system in SYSTEMS} - {None}
            row["agree"] = len(counts) == 1
            print(row, flush=True)
            found.append(row)
        if set(options.case) == set(CASES):  # also if a later size is stopped
            write("joins", {"rows": found, "load": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
