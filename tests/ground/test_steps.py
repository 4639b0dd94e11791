"""Joins in steps: every body has the groundings that a loop over all assignments finds."""

from itertools import product

import pytest
import torch

from edgewise import EdgewiseError, Program, R, V
from edgewise.ground.joins import joiner

N = 6
BODIES = {
    "triangles": ("XYZ", "*e(X, Y), *e(Y, Z), *e(Z, X)"),
    "nodes on a triangle": ("X", "*e(X, Y), *e(Y, Z), *e(Z, X)"),
    "4-cycles": ("XYZW", "*e(X, Y), *e(Y, Z), *e(Z, W), *e(W, X)"),
    "nodes on a 4-cycle": ("X", "*e(X, Y), *e(Y, Z), *e(Z, W), *e(W, X)"),
    "opposite nodes": ("XZ", "*e(X, Y), *e(Y, Z), *e(Z, W), *e(W, X)"),
    "cliques of four": ("XYZW", "*e(X, Y), *e(X, Z), *e(X, W), *e(Y, Z), *e(Y, W), *e(Z, W)"),
    "two hops": ("XZ", "*e(X, Y), *e(Y, Z)"),
    "two hops, in order": ("XYZ", "*e(X, Y), *e(Y, Z), @lt(X, Z)"),
    "two hops, filtered": ("XZ", "*e(X, Y), *e(Y, Z), *f(X), *f(Z)"),
    "three hops, not one": ("XW", "*e(X, Y), *e(Y, Z), *e(Z, W), !e(X, W)"),
    "two hops of two labels": ("XYZ", "*e(X, Y), *e(Y, Z), *e(X, 3), *e(Z, 4), @leq(Z, 5)"),
    "a loop": ("X", "*e(X, X), *e(X, Y)"),
    "from a constant": ("YZ", "*e(3, Y), *e(Y, Z), *e(Z, 3)"),
    "a constant alone": ("X", "*e(3, 4), *f(X)"),
    "differences": ("XYD", "*e(X, Y), @sub(X, Y, D), *f(D)"),
    "bounded": ("XYT", "*f(X), *f(Y), *f(T), @leq(X, T), @lt(T, Y)"),
}


@pytest.fixture(params=[True, False], ids=["as if large", "small"])
def size(request, monkeypatch):
    """Whether chunks, filters and semi-joins are used as on large data."""
    if request.param:
        monkeypatch.setattr(joiner, "CHUNK", 2)
        monkeypatch.setattr("edgewise.ground.joins.groups.LEAST_FILTERED", 1)
        monkeypatch.setattr("edgewise.ground.joins.reduce.LEAST_REDUCED", 1)
        monkeypatch.setattr("edgewise.ground.joins.reduce.SMALLER", 0)
        monkeypatch.setattr("edgewise.ground.index.MANY", 1)


def holds(body, values, edges, nodes):
    """Whether a body holds for an assignment of its variables."""
    for literal in body.split("), "):
        name, _, inner = literal.rstrip(")").partition("(")
        key = tuple(values[t] if t in values else int(t) for t in inner.split(", "))
        match name:
            case "*e" | "!e":
                true = (key in edges) == (name == "*e")
            case "*f":
                true = key[0] in nodes
            case "@lt":
                true = key[0] < key[1]
            case "@leq":
                true = key[0] <= key[1]
            case "@sub":
                true = key[0] - key[1] == key[2]
        if not true:
            return False
    return True


@pytest.mark.parametrize("name", BODIES)
def test_groundings_are_those_of_a_loop(name, size):
    names, body = BODIES[name]
    generator = torch.Generator().manual_seed(len(name))
    codes = torch.unique(torch.randint(N * N, (16,), generator=generator))
    edges = {(int(c) // N, int(c) % N) for c in codes} | {(3, 4), (4, 3), (3, 3)}
    nodes = {0, 2, 3, 4}
    program = Program.parse(f"out({', '.join(names)}) :- {body}.")
    data = {"e": torch.tensor(sorted(edges)).T, "f": torch.tensor([sorted(nodes)])}
    used = {key: value for key, value in data.items() if f"{key}(" in body}
    found = program.compile(R.out).rows(**used)
    hidden = sorted({c for c in body if c in "XYZWDT"} - set(names))
    every = [*names, *hidden]
    expected = {
        values[: len(names)]
        for values in product(range(N), repeat=len(every))
        if holds(body, dict(zip(every, values, strict=True)), edges, nodes)
    }
    assert found.index.T.tolist() == [list(key) for key in sorted(expected)]


@pytest.mark.parametrize("n", [20_000])
def test_a_star_without_a_triangle_reads_its_edges_twice(n, monkeypatch):
    """As a row of its node, and as the match of its shorter list, whichever end the centre is."""
    read = []
    real = joiner.expansion

    def counted(first, counts, total):
        read.append(total)
        return real(first, counts, total)

    monkeypatch.setattr(joiner, "expansion", counted)
    leaves = torch.arange(1, n)
    edges = torch.stack([torch.cat([leaves * 0, leaves]), torch.cat([leaves, leaves * 0])])
    rule = R.out(V.X) <= (R._e(V.X, V.Y), R._e(V.Y, V.Z), R._e(V.Z, V.X))
    assert len(Program([rule]).compile(R.out).rows(e=edges)) == 0
    assert sum(read) == 4 * (n - 1)


def test_a_condition_that_many_paths_satisfy_reads_some_of_them(monkeypatch):
    """Nodes on a 4-cycle of a complete graph: 1,560 edges, 2 million paths of three of them."""
    monkeypatch.setattr(joiner, "CHUNK", 1024)
    read = []
    real = joiner.expansion
    monkeypatch.setattr(joiner, "expansion", lambda *of: read.append(of[2]) or real(*of))
    edges = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T
    edges = edges[:, edges[0] != edges[1]]
    rule = R.out(V.X) <= (R._e(V.X, V.Y), R._e(V.Y, V.Z), R._e(V.Z, V.W), R._e(V.W, V.X))
    assert len(Program([rule]).compile(R.out).rows(e=edges)) == 40
    assert sum(read) < 20_000


def test_a_join_that_is_too_large_is_refused_from_a_sample(monkeypatch):
    """Before its chunks are made, with the atom at which it grows."""
    monkeypatch.setattr(joiner, "CHUNK", 256)
    monkeypatch.setattr(joiner, "SAMPLED", 64)
    read = []
    real = joiner._slices
    monkeypatch.setattr(joiner, "_slices", lambda *sizes: read.append(sizes[1]) or real(*sizes))
    edges = torch.stack([torch.arange(900) // 30, torch.arange(900) % 30])
    edges = edges[:, edges.sum(0) > 0]  # not a grid
    program = Program(
        [R.out(V.X, V.Y, V.Z, V.W) <= (R._e(V.X, V.Y), R._e(V.Y, V.Z), R._e(V.Z, V.W))]
    )
    with pytest.raises(
        EdgewiseError, match=r"at `R._e\(V.*MiB, more than the limit of 1.0 MiB"
    ) as e:
        program.compile(R.out, limit=1 << 20).ground(e=edges)
    assert e.value.code == "plan-too-large"
    assert max(read, default=0) <= 64 * 30  # of the sample alone


def test_what_a_later_condition_filters_does_not_count():
    n = 60
    edges = torch.stack([torch.arange(n * n) // n, torch.arange(n * n) % n])
    edges = edges[:, edges[0] != edges[1]]
    rule = R.out(V.X, V.Z) <= (R._e(V.X, V.Y), R._e(V.Y, V.Z), R._f(V.X, V.Z))
    model = Program([rule]).compile(R.out, limit=1 << 20)  # 208,860 paths of 24 bytes are more
    assert len(model.rows(e=edges, f=torch.tensor([[0, 5], [1, 5]]))) == 2
