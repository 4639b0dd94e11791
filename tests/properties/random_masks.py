"""Random masks as queries, each with a search over its atoms in plain Python.

    python -m tests.properties.random_masks --seconds 60 --seed 0

`pick` chooses from a sequence; everything random is chosen by it, so that hypothesis shrinks.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from edgewise import F, Program, R, V, W, ragged
from edgewise.graphs import blocks, causal, strided, window

WIDTH = 4
HEADS = 3
Pick = Callable[[Any], Any]
Env = dict[str, int]
Tables = dict[str, Any]


@dataclass
class Relational:
    """An atom of a table; negated it only tests."""

    name: str
    terms: tuple[str, ...]
    negated: bool = False

    def written(self) -> Any:
        atom = R[self.name](*(V[t] for t in self.terms))
        return ~atom if self.negated else R.hidden[self.name](*(V[t] for t in self.terms))


@dataclass
class Tested:
    """A condition as it is written, and as a function of the variables and the tables."""

    expression: Any
    holds: Callable[[Env, Tables], bool]

    def written(self) -> Any:
        return self.expression


Body = list[Relational | Tested]


@dataclass
class RandomMask:
    """The body of a score, the rules that it needs, and how it is run."""

    body: Body
    derived: dict[str, list[Body]] = field(default_factory=dict)  # of (I, J)
    with_heads: bool = False

    @property
    def relations(self) -> set[str]:
        """What is read, in whichever rule."""
        bodies = [self.body, *(body for bodies in self.derived.values() for body in bodies)]
        return {item.name for body in bodies for item in body if isinstance(item, Relational)}

    def program(self) -> Program:
        i, j, h = V.I, V.J, V.H
        size = (WIDTH, WIDTH)
        rules = [
            R[name](i, j) <= tuple(item.written() for item in body)
            for name, bodies in self.derived.items()
            for body in bodies
        ]
        if "reached" in self.relations:
            a = V.A
            rules.append(R.reached(i, j) <= R._edge(i, j))
            rules.append(R.reached(i, j) <= (R._reached(i, a), R._edge(a, j)))
        more = tuple(item.written() for item in self.body)
        own = (h,) if self.with_heads else ()
        weight = (lambda name: W[name](h)[size]) if self.with_heads else lambda name: size
        return Program(
            [
                *(R[name](*own, i) <= R.h(i)[weight(name)] for name in "qkv"),
                *rules,
                (R.weights(*own, i, j) <= (R.k(*own, j).T, R.q(*own, i), *more))
                | [F.product, F.softmax_agg(agg_terms=[j])],
                (R.out(*own, i) <= (R.weights(*own, i, j), R.v(*own, j))) | [F.product],
            ],
            domains={h: HEADS} if self.with_heads else {},
        )  # fmt: skip

    def matrix(self, n: int, tables: Tables) -> torch.Tensor:
        """Which pairs there are: (heads, n, n)."""
        tables = dict(tables)
        for name, bodies in self.derived.items():
            tables[name] = {
                (i, j)
                for i in range(n)
                for j in range(n)
                if any(any(_answers(body, {"I": i, "J": j}, tables)) for body in bodies)
            }
        heads = HEADS if self.with_heads else 1
        found = torch.zeros(heads, n, n, dtype=torch.bool)
        for h in range(heads):
            for i in range(n):
                for j in range(n):
                    env = {"I": i, "J": j, "H": h}
                    found[h, i, j] = any(_answers(self.body, env, tables))
        return found


def _answers(body: Body, env: Env, tables: Tables) -> Iterator[bool]:
    """True for each assignment of the other variables: atoms first, then tests."""
    atoms = [item for item in body if isinstance(item, Relational) and not item.negated]
    tests = [item for item in body if item not in atoms]

    def search(at: int, env: Env) -> Iterator[bool]:
        if at < len(atoms):
            atom = atoms[at]
            for row in tables[atom.name]:
                more = dict(env)
                if all(more.setdefault(t, v) == v for t, v in zip(atom.terms, row, strict=True)):
                    yield from search(at + 1, more)
            return
        for item in tests:
            if isinstance(item, Tested):
                fine = item.holds(env, tables)
            else:
                fine = tuple(env[t] for t in item.terms) not in tables[item.name]
            if not fine:
                return
        yield True

    return search(0, env)


class Maker:
    """Bodies over the pair (I, J), with new variables for what is existential."""

    def __init__(self, pick: Pick, with_heads: bool) -> None:
        self.pick, self.with_heads, self.count = pick, with_heads, 0
        self.derived: dict[str, list[Body]] = {}
        self.used: list[str] = []

    def mask(self) -> RandomMask:
        body = [item for _ in range(self.pick((1, 1, 2, 2, 3))) for item in self.group(2)]
        return RandomMask(body, self.derived, self.with_heads)

    def variable(self) -> str:
        if self.used and self.pick((False, False, False, True)):
            return self.pick(self.used)
        self.count += 1
        self.used.append(f"A{self.count}")
        return self.used[-1]

    def group(self, depth: int) -> Body:
        kinds = [
            self.shared, self.compared, self.linked, self.edges, self.flags, self.positions,
            self.pattern, self.mixed, self.spans, self.banned, self.values, self.one_value,
        ]  # fmt: skip
        kinds += [self.heads] * 3 if self.with_heads and depth == 2 else []
        kinds += [lambda: self.near(depth)] * 2 if depth else []
        return self.pick(kinds)()

    def table(self) -> str:
        return self.pick(("class", "kind", "several"))

    def shared(self) -> Body:
        a = self.variable()
        return [Relational(self.table(), ("I", a)), Relational(self.table(), ("J", a))]

    def two(self) -> tuple[str, str, Body]:
        a, b = self.variable(), self.variable()
        return a, b, [Relational(self.table(), ("I", a)), Relational(self.table(), ("J", b))]

    def compared(self) -> Body:
        a, b, body = self.two()
        return [*body, self.comparison(a, b)]

    def comparison(self, a: str, b: str) -> Tested:
        x, y, k = V[a], V[b], self.pick((0, 1, 2, 3))
        return self.pick((
            Tested(x <= y, lambda e, _: e[a] <= e[b]),
            Tested(y < x, lambda e, _: e[b] < e[a]),
            Tested(x != y, lambda e, _: e[a] != e[b]),
            Tested(x + y <= k + 1, lambda e, _: e[a] + e[b] <= k + 1),
            Tested(abs(x - y) <= k, lambda e, _: abs(e[a] - e[b]) <= k),
            Tested(abs(x - y) > k, lambda e, _: abs(e[a] - e[b]) > k),
            Tested(x - y >= k - 1, lambda e, _: e[a] - e[b] >= k - 1),
            Tested((x + 2 * y) % 3 == k, lambda e, _: (e[a] + 2 * e[b]) % 3 == k),
            Tested((x - y) % 2 != k, lambda e, _: (e[a] - e[b]) % 2 != k),
            Tested(2 * x <= 3 * y, lambda e, _: 2 * e[a] <= 3 * e[b]),
            Tested(x * y <= k, lambda e, _: e[a] * e[b] <= k),
            Tested(~(x <= y), lambda e, _: not e[a] <= e[b]),
            Tested(window(k)(x, y), lambda e, _: abs(e[a] - e[b]) <= k),
            Tested(~causal()(x, y), lambda e, _: e[b] > e[a]),
        ))  # fmt: skip

    def linked(self) -> Body:
        a, b, body = self.two()
        return [*body, Relational("link", (a, b), self.pick((False, True)))]

    def edges(self) -> Body:
        a = self.variable()
        return self.pick((
            [Relational("edge", ("I", "J"))],
            [Relational("edge", ("J", "I"))],
            [Relational("edge", ("I", a)), Relational("edge", (a, "J"))],
            [Relational("edge", ("I", a)), Relational("edge", ("J", a))],
            [Relational("edge", ("I", "I"))],
            [Relational("edge", ("J", a))],
            self.reached(),
        ))  # fmt: skip

    def reached(self) -> Body:
        """The closure of edges, which Python has as a table."""
        return [
            Relational("reached", self.pick((("I", "J"), ("J", "I"))), self.pick((False, True)))
        ]

    def flags(self) -> Body:
        return [Relational("flag", (self.pick("IJ"),), self.pick((False, True)))]

    def banned(self) -> Body:
        terms = self.pick((("I", "J"), ("J", "I"), ("J", "J")))
        return [Relational("edge", terms, True)]

    def positions(self) -> Body:
        return [self.comparison(*self.pick((("I", "J"), ("J", "I"))))]

    def pattern(self) -> Body:
        k = self.pick((1, 2, 5))
        i, j = V.I, V.J
        return [self.pick((
            Tested(causal()(i, j), lambda e, _: e["J"] <= e["I"]),
            Tested(window(k)(i, j), lambda e, _: abs(e["I"] - e["J"]) <= k),
            Tested((~window(k))(i, j), lambda e, _: abs(e["I"] - e["J"]) > k),
            Tested(blocks(k)(i, j), lambda e, _: e["I"] // k == e["J"] // k),
            Tested((causal() & window(k))(i, j), lambda e, _: 0 <= e["I"] - e["J"] <= k),
            Tested((strided(k) | causal())(i, j),
                   lambda e, _: e["J"] <= e["I"] or (e["I"] - e["J"]) % k == 0),
        ))]  # fmt: skip

    def mixed(self) -> Body:
        """A number of one token beside positions."""
        a, side = self.variable(), self.pick("IJ")
        i, j, x = V.I, V.J, V[a]
        return [Relational(self.table(), (side, a)), self.pick((
            Tested(i - j <= x, lambda e, _: e["I"] - e["J"] <= e[a]),
            Tested(abs(i - j) <= x, lambda e, _: abs(e["I"] - e["J"]) <= e[a]),
            Tested(abs(i - j) > x, lambda e, _: abs(e["I"] - e["J"]) > e[a]),
            Tested(j <= x, lambda e, _: e["J"] <= e[a]),
            Tested(x != i, lambda e, _: e[a] != e["I"]),
            Tested((i + j + x) % 2 == 0, lambda e, _: (e["I"] + e["J"] + e[a]) % 2 == 0),
            Tested(j == x + 1, lambda e, _: e["J"] == e[a] + 1),
        ))]  # fmt: skip

    def spans(self) -> Body:
        a, b, (own, other) = self.variable(), self.variable(), self.pick(("IJ", "JI"))
        x, y, t = V[a], V[b], V[other]
        atom = Relational("span", (own, a, b))
        return [atom, Tested(x <= t, lambda e, _: e[a] <= e[other]),
                Tested(t < y, lambda e, _: e[other] < e[b])]  # fmt: skip

    def values(self) -> Body:
        i, j, k = V.I, V.J, self.pick((-0.5, 0.0, 0.5))
        s, t = R.s(i), R.t(j)

        def apart(e: Env, d: Tables) -> float:
            return float(abs(d["s"][e["I"]] - d["t"][e["J"]]))

        return [self.pick((
            Tested(s > t, lambda e, d: d["s"][e["I"]] > d["t"][e["J"]]),
            Tested(R.s(j) >= R.s(i), lambda e, d: d["s"][e["J"]] >= d["s"][e["I"]]),
            Tested(s + t > k, lambda e, d: d["s"][e["I"]] + d["t"][e["J"]] > k),
            Tested(abs(s - t) <= abs(k), lambda e, d: apart(e, d) <= abs(k)),
            Tested(abs(s - t) > abs(k), lambda e, d: apart(e, d) > abs(k)),
            Tested(~(s + t > k), lambda e, d: not d["s"][e["I"]] + d["t"][e["J"]] > k),
            Tested(s * t > k, lambda e, d: d["s"][e["I"]] * d["t"][e["J"]] > k),
        ))]  # fmt: skip

    def one_value(self) -> Body:
        k, side = self.pick((-0.5, 0.0, 0.5)), self.pick("IJ")
        found = self.pick((
            Tested(R.s(V[side]) > k, lambda e, d: d["s"][e[side]] > k),
            Tested(~(R.t(V[side]) > k), lambda e, d: not d["t"][e[side]] > k),
        ))  # fmt: skip
        return [found]

    def near(self, depth: int) -> Body:
        """A relation with rules of its own, or a known one."""
        if self.derived and self.pick((False, True)):
            name = self.pick(sorted(self.derived))
        else:
            used, self.used = self.used, []
            bodies = [
                [*self.tokens(), *(item for _ in range(self.pick((1, 1, 2)))
                                   for item in self.group(depth - 1))]
                for _ in range(self.pick((1, 2)))
            ]  # fmt: skip
            self.used = used
            name = f"near{len(self.derived)}"
            self.derived[name] = bodies
        terms = self.pick((("I", "J"), ("J", "I")))
        return [Relational(name, terms, self.pick((False, False, True)))]

    def tokens(self) -> Body:
        return [Relational("token", ("I",)), Relational("token", ("J",))]

    def heads(self) -> Body:
        a, h = self.variable(), V.H
        return self.pick((
            [Relational("on", ("H",), self.pick((False, True)))],
            [Relational("reach", ("H", a)),
             Tested(abs(V.I - V.J) <= V[a], lambda e, _: abs(e["I"] - e["J"]) <= e[a])],
            [Relational("reach", ("H", a)), Relational(self.table(), ("J", a))],
            [Tested((V.I + V.J + h) % 2 == 0, lambda e, _: (e["I"] + e["J"] + e["H"]) % 2 == 0)],
        ))  # fmt: skip


def tables_of(pick: Pick, n: int) -> Tables:
    """Facts about n tokens; some tokens have none, some several."""
    ends, values = range(n), range(4)

    def rows(count: int, *axes: Any) -> set[tuple[int, ...]]:
        return {tuple(pick(axis) for axis in axes) for _ in range(count) if all(map(len, axes))}

    numbers = (-1.0, -0.5, 0.0, 0.25, 0.5, 1.0)
    found = {
        "token": {(i,) for i in ends},
        "class": {(i, pick(values)) for i in ends},
        "kind": {(i, pick(values)) for i in ends if pick((True, True, False))},
        "several": rows(2 * n, ends, values),
        "edge": rows(2 * n, ends, ends),
        "link": rows(5, values, values),
        "reached": set(),
        "flag": rows(max(n // 2, 1), ends),
        "span": {(i, pick(range(n + 1)), pick(range(n + 1))) for i in ends},
        "on": rows(2, range(HEADS)),
        "reach": {(h, pick(values)) for h in range(HEADS)},
        "s": [pick(numbers) for _ in ends],
        "t": [pick(numbers) for _ in ends],
    }
    closed = set(found["edge"])
    while more := {(a, d) for a, b in closed for c, d in found["edge"] if b == c} - closed:
        closed |= more
    return found | {"reached": closed}


ARITY = {"token": 1, "class": 2, "kind": 2, "several": 2, "edge": 2, "link": 2, "flag": 1,
         "span": 3, "on": 1, "reach": 2}  # fmt: skip


def inputs_of(program: Program, tables: Tables, h: torch.Tensor) -> dict[str, Any]:
    from edgewise.language.statements import atoms

    read = {a.relation for rule in program.rules for a in atoms(rule) if hasattr(a, "relation")}
    found: dict[str, Any] = {"h": h}
    for name in sorted(read & tables.keys() - {"reached"}):
        own = tables[name]
        if name in ARITY:
            keys = torch.tensor(sorted(own), dtype=torch.int64).reshape(-1, ARITY[name])
            found[name] = keys.T.contiguous()
        else:
            found[name] = torch.tensor(own, dtype=h.dtype)[:, None]
    return found


def expected_of(model: Any, mask: torch.Tensor, h: torch.Tensor, heads: bool) -> torch.Tensor:
    """(heads, n, width), or (n, width): a softmax of all pairs with a matrix."""
    weight = dict(model.named_parameters())

    def projected(name: str) -> torch.Tensor:
        if not heads:
            return (h @ weight[f"{name}.h"].T)[None]
        return torch.einsum("nd,hed->hne", h, weight[name])

    q, k, v = map(projected, "qkv")
    scores = (q @ k.mT).masked_fill(~mask, -torch.inf)
    some = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~some, 0.0).softmax(-1).masked_fill(~some, 0.0)
    found = weights @ v
    return found if heads else found[0]


def check(pick: Pick) -> None:
    """Make a mask, compute it in one of several ways, and compare with matrices."""
    maker = Maker(pick, pick((False, False, True)))
    mask = maker.mask()
    program = mask.program()
    with_heads = mask.with_heads
    way = pick(("dense", "ragged", "batch") if not with_heads else ("dense", "batch"))
    sizes = [pick((1, 2, 5, 7, 12, 40)) for _ in range(3 if way == "ragged" else 1)]
    every = [tables_of(pick, n) for n in sizes]
    random_h = torch.Generator().manual_seed(pick(range(1000)))
    batch = (2,) if way == "batch" else ()
    hs = [
        torch.randn(*batch, n, WIDTH, generator=random_h, dtype=torch.float64).requires_grad_()
        for n in sizes
    ]
    model = program.compile(R.out, seed=0, fill=0.0, dtype=torch.float64)
    matrices = [mask.matrix(n, t) for n, t in zip(sizes, every, strict=True)]
    each = [inputs_of(program, t, h) for t, h in zip(every, hs, strict=True)]
    pairs = sum(int(m.sum()) for m in matrices) * (2 if batch else 1)
    if way == "ragged":
        inputs = {name: ragged([own[name] for own in each]) for name in each[0]}
        found = model.rows(**inputs)
        expected = [expected_of(model, m, h, False) for m, h in zip(matrices, hs, strict=True)]
        dense = torch.cat([e[m[0].any(-1)] for e, m in zip(expected, matrices, strict=True)])
        keys = torch.cat([
            torch.stack([torch.full((int(m[0].any(-1).sum()),), k), m[0].any(-1).nonzero()[:, 0]])
            for k, m in enumerate(matrices)
        ], 1)  # fmt: skip
        assert torch.equal(found.index, keys), "other rows"
        compare(found.data, dense, [*model.parameters(), *hs])
    else:
        (inputs,), (matrix,), (h,) = each, matrices, hs
        if batch:  # values of both samples are alike
            inputs |= {k: t.expand(2, *t.shape) for k, t in inputs.items() if k in ("s", "t")}
        found = model(**inputs)
        if not isinstance(found, torch.Tensor):
            found = dense_of(found, (*batch, HEADS, *sizes, WIDTH) if with_heads else h.shape)
        samples = h if batch else h[None]
        expected = torch.stack([expected_of(model, matrix, one, with_heads) for one in samples])
        compare(found, expected if batch else expected[0], [*model.parameters(), h])
    assert_pairs(model, inputs, pairs)


def dense_of(found: Any, shape: tuple[int, ...]) -> torch.Tensor:
    made = torch.zeros(shape, dtype=found.data.dtype)
    if not found.batched:
        return made.index_put(tuple(found.index), found.data)
    return torch.stack([made[0].index_put(tuple(found.index), own) for own in found.data])


def compare(found: torch.Tensor, expected: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    torch.testing.assert_close(found, expected)
    scale = torch.linspace(0.5, 1.5, expected.numel(), dtype=expected.dtype).reshape(expected.shape)
    if not expected.requires_grad or not expected.numel():
        return
    ours, theirs = (
        torch.autograd.grad((value * scale).sum(), leaves, allow_unused=True)
        if value.requires_grad
        else [None] * len(leaves)
        for value in (found, expected)
    )
    for leaf, a, b in zip(leaves, ours, theirs, strict=True):
        zero = torch.zeros_like(leaf)
        torch.testing.assert_close(zero if a is None else a, zero if b is None else b)


def assert_pairs(model: Any, inputs: dict[str, Any], pairs: int) -> None:
    """As many pairs are computed as there are."""
    relations = model.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"]
    (relation,) = [r for r in relations if r["relation"] == "out"]
    step = relation["steps"][0] if relation["steps"] else {"pairs": 0}
    computed = step["pairs"] if "pairs" in step else step["groundings"]
    # short samples of a pattern alone are padded where another call would take longer
    padded = "h" in inputs and isinstance(inputs["h"], ragged) and "mask" not in step
    assert computed == pairs or (padded and computed > pairs), f"{computed} of {pairs} pairs"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one is not None:
        pick = random.Random(options.one).choice
        maker = Maker(pick, pick((False, False, True)))
        print(maker.mask().program().text())
        check(random.Random(options.one).choice)
        return
    start, seed, failed = time.process_time(), options.seed, {}
    while time.process_time() - start < options.seconds:
        try:
            check(random.Random(seed).choice)
        except Exception as error:
            line = f"{type(error).__name__}: {error}".strip().splitlines()
            failed[seed] = " / ".join(line[:3])[:300]
            print(seed, failed[seed], flush=True)
        seed += 1
        if (seed - options.seed) % 500 == 0:
            print(f"{seed - options.seed} masks, {len(failed)} failed", flush=True)
    print(f"{seed - options.seed} masks, {len(failed)} failed: {sorted(failed)[:20]}")


if __name__ == "__main__":
    main()
