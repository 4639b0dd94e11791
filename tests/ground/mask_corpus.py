"""Masks written as queries: conditions, the rules they need, their facts, and the mask by loops.

`facts(n, random)` gives tables of integers (arity, rows) for n tokens; `allowed(i, j, facts)` says
whether token i attends to token j, in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from edgewise import F, Program, R, V
from edgewise.graphs import causal, strided, window

I, J = V.I, V.J  # noqa: E741
A, B, C, D, P, Q, S, T, U = (getattr(V, name) for name in "ABCDPQSTU")
AT = R.special
EARLIER = AT.leq(J, I)
Tables = dict[str, np.ndarray]
SHORT, TEXTS = (0.15, 0.1, 0.12), (1 / 25, 1 / 400, 1 / 40)  # ends of sentences, documents, turns


def per_token(n, values):
    return np.stack([np.arange(n), values])


def facts(n: int, seed: int = 0, rates: tuple[float, float, float] = SHORT) -> Tables:
    """What is known of n tokens: of a dialogue, of documents, of a tree, of places and times."""
    random = np.random.default_rng(seed)
    tokens = np.arange(n)
    sentence = np.cumsum(random.random(n) < rates[0])
    document = np.cumsum(random.random(n) < rates[1])
    turn = np.cumsum(random.random(n) < rates[2])
    time = np.cumsum(random.integers(0, 4, n))
    parent = np.array([-1, *(random.integers(0, i) for i in range(1, n))])
    head = np.arange(1, n)
    mention = np.unique(
        np.stack([random.integers(0, n, n // 3), random.integers(0, max(n // 8, 1), n // 3)]),
        axis=1,
    )
    pairs = np.unique(random.integers(0, n, (2, 3 * n)), axis=1)
    member = np.unique(np.stack([np.repeat(np.arange(4), 2), random.integers(0, 3, 8)]), axis=1)
    start = random.integers(0, n, n)
    return {
        "speaker": per_token(n, random.integers(0, 2, n)),
        "role": per_token(n, random.integers(0, 3, n)),
        "sentence": per_token(n, sentence),
        "document": per_token(n, document),
        "shuffled": per_token(n, random.permutation(n) % 5),
        "turn": per_token(n, turn),
        "turn_speaker": np.stack([np.arange(turn.max() + 1), np.arange(turn.max() + 1) % 2]),
        "time": per_token(n, time),
        "clock": per_token(n, random.permutation(n)),
        "arrived": per_token(n, random.integers(0, 2 * n, n)),
        "parent": np.stack([head, parent[1:]]),
        "depth": per_token(n, _depths(parent)),
        "mention": mention,
        "edge": pairs,
        "reply": np.unique(random.integers(0, turn.max() + 1, (2, turn.max() + 1)), axis=1),
        "x": per_token(n, random.integers(0, 6, n)),
        "y": per_token(n, random.integers(0, 6, n)),
        "level": per_token(n, random.integers(0, 4, n)),
        "owner": per_token(n, random.integers(0, 4, n)),
        "group": per_token(n, random.integers(0, 3, n)),
        "member": member,
        "scope": np.stack([tokens, start, np.minimum(start + random.integers(0, n, n), n)]),
        "reach": per_token(n, random.integers(0, 9, n)),
        "real": tokens[random.random(n) < 0.8][None],
        "global": tokens[random.random(n) < 0.1][None],
        "type": per_token(n, random.integers(0, 4, n)),
        "compatible": np.array([[0, 0, 1, 2, 3], [1, 2, 3, 2, 0]]),
        "prefix": per_token(document.max() + 1, random.integers(0, 6, document.max() + 1)),
        "offset": per_token(n, tokens - np.searchsorted(document, document)),
        "bucket": per_token(n, random.integers(0, 8, n)),
        "banned": np.unique(random.integers(0, n, (2, n)), axis=1),
        "layer": per_token(n, np.minimum(tokens * 6 // n, 5)),
        "language": per_token(n, random.integers(0, 2, n)),
    }  # fmt: skip


def _depths(parent):
    depth = np.zeros(len(parent), int)
    for i in range(1, len(parent)):
        depth[i] = depth[parent[i]] + 1
    return depth


class Known:
    """Facts as Python objects, for conditions by loops."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    @lru_cache(None)  # noqa: B019  lives as long as a test
    def pairs(self, name: str) -> set[tuple[int, ...]]:
        return {tuple(row) for row in self.tables[name].T.tolist()}

    @lru_cache(None)  # noqa: B019
    def of(self, name: str) -> dict[int, int]:
        return dict(self.tables[name].T.tolist())

    @lru_cache(None)  # noqa: B019
    def sets(self, name: str) -> dict[int, frozenset[int]]:
        found: dict[int, set[int]] = {}
        for i, value in self.tables[name].T.tolist():
            found.setdefault(i, set()).add(value)
        return {i: frozenset(values) for i, values in found.items()}

    def same(self, name: str, i: int, j: int) -> bool:
        return self.of(name)[i] == self.of(name)[j]

    def meet(self, name: str, i: int, j: int) -> bool:
        none: frozenset[int] = frozenset()
        return bool(self.sets(name).get(i, none) & self.sets(name).get(j, none))

    @lru_cache(None)  # noqa: B019
    def ancestors(self, i: int) -> frozenset[int]:
        parent = self.of("parent").get(i)
        return frozenset() if parent is None else self.ancestors(parent) | {parent}


@dataclass(frozen=True)
class MaskCase:
    """One mask: its conditions, rules that derive what they read, and the same by loops."""

    name: str
    conditions: tuple[Any, ...]
    allowed: Callable[[int, int, Known], bool]
    rules: tuple[Any, ...] = field(default=())

    def program(self, d: int = 8) -> Program:
        """Self-attention of x with this mask."""
        body = (R.k(J).T, R.q(I), *self.conditions)
        return Program([
            R.q(I) <= R.h(I)[d, d], R.k(I) <= R.h(I)[d, d], R.v(I) <= R.h(I)[d, d],
            *self.rules,
            (R.weights(I, J) <= body) | [F.product, F.softmax_agg(agg_terms=[J])],
            (R.out(I) <= (R.weights(I, J), R.v(J))) | [F.product],
        ])  # fmt: skip

    def inputs(self, tables: Tables) -> dict[str, torch.Tensor]:
        """The facts that the program reads."""
        from edgewise.language.statements import atoms

        program = self.program()
        read = {a.relation for rule in program.rules for a in atoms(rule) if hasattr(a, "relation")}
        return {name: torch.from_numpy(tables[name]) for name in sorted(read & tables.keys())}

    def mask(self, n: int, tables: Tables) -> torch.Tensor:
        known = Known(tables)
        return torch.tensor([[bool(self.allowed(i, j, known)) for j in range(n)] for i in range(n)])


def same(name, more=()):
    """Tokens with a common value."""
    atom = getattr(R, f"_{name}")
    return (atom(I, S), atom(J, S), *more)


def derived(*bodies):
    return tuple(R.near(I, J) <= body for body in bodies)


NEAR = (R._near(I, J),)
ANCESTOR = (R.above(I, J) <= R.parent(I, J), R.above(I, J) <= (R.parent(I, P), R.above(P, J)))

CORPUS = [
    # dialogue
    MaskCase("same speaker", same("speaker"), lambda i, j, f: f.same("speaker", i, j)),
    MaskCase(
        "same speaker, derived", NEAR, lambda i, j, f: f.same("speaker", i, j),
        derived((R.speaker(I, S), R.speaker(J, S))),
    ),
    MaskCase(
        "same speaker, earlier", same("speaker", [EARLIER]),
        lambda i, j, f: f.same("speaker", i, j) and j <= i,
    ),
    MaskCase(
        "other speaker, earlier", (R._speaker(I, S), R._speaker(J, T), AT.neq(S, T), EARLIER),
        lambda i, j, f: not f.same("speaker", i, j) and j <= i,
    ),
    MaskCase(
        "own turn or the other speaker", (R._near(I, J), EARLIER),
        lambda i, j, f: j <= i and (f.same("turn", i, j) or not f.same("speaker", i, j)),
        derived((R.turn(I, T), R.turn(J, T)), (R.speaker(I, S), R.speaker(J, T), AT.neq(S, T))),
    ),
    MaskCase(
        "previous turn", (R._turn(I, T), AT.next(U, T), R._turn(J, U)),
        lambda i, j, f: f.of("turn")[j] + 1 == f.of("turn")[i],
    ),
    MaskCase(
        "turns of the same speaker",
        (R._turn(I, T), R._turn_speaker(T, S), R._turn(J, U), R._turn_speaker(U, S)),
        lambda i, j, f: f.of("turn")[i] % 2 == f.of("turn")[j] % 2,
    ),
    MaskCase(
        "turns that were replied to", (R._turn(I, T), R._reply(T, U), R._turn(J, U)),
        lambda i, j, f: (f.of("turn")[i], f.of("turn")[j]) in f.pairs("reply"),
    ),
    MaskCase(
        "last two turns", (R._turn(I, T), R._turn(J, U), AT.sub(T, U, D), AT.leq(D, 2)),
        lambda i, j, f: 0 <= f.of("turn")[i] - f.of("turn")[j] <= 2,
    ),
    # documents
    MaskCase("documents", same("document"), lambda i, j, f: f.same("document", i, j)),
    MaskCase(
        "documents, causal", same("document", [causal()(I, J)]),
        lambda i, j, f: f.same("document", i, j) and j <= i,
    ),
    MaskCase("shuffled documents", same("shuffled"), lambda i, j, f: f.same("shuffled", i, j)),
    MaskCase(
        "shuffled documents, causal", same("shuffled", [EARLIER]),
        lambda i, j, f: f.same("shuffled", i, j) and j <= i,
    ),
    MaskCase(
        "documents × roles", (*same("document"), R._role(I, A), R._role(J, A)),
        lambda i, j, f: f.same("document", i, j) and f.same("role", i, j),
    ),
    MaskCase(
        "documents with prefixes",
        (*same("document"), R._near(I, J)),
        lambda i, j, f: f.same("document", i, j)
        and (j <= i or f.of("offset")[j] < f.of("prefix")[f.of("document")[j]]),
        derived(
            (R.h(I), R.h(J), EARLIER),
            (R.h(I), R.document(J, S), R.offset(J, A), R.prefix(S, B), AT.lt(A, B)),
        ),
    ),
    MaskCase(
        "windows inside documents", same("document", [window(3)(I, J)]),
        lambda i, j, f: f.same("document", i, j) and abs(i - j) <= 3,
    ),
    MaskCase(
        "windows inside shuffled documents", same("shuffled", [window(7)(I, J)]),
        lambda i, j, f: f.same("shuffled", i, j) and abs(i - j) <= 7,
    ),
    MaskCase(
        "every other token of a document", same("shuffled", [strided(2)(I, J)]),
        lambda i, j, f: f.same("shuffled", i, j) and (i - j) % 2 == 0,
    ),
    # sentences and coreference
    MaskCase(
        "same sentence or coreferent, and earlier", (R._near(I, J), EARLIER),
        lambda i, j, f: j <= i and (f.same("sentence", i, j) or f.meet("mention", i, j)),
        derived((R.sentence(I, S), R.sentence(J, S)), (R.mention(I, C), R.mention(J, C))),
    ),
    MaskCase("coreferent", same("mention"), lambda i, j, f: f.meet("mention", i, j)),
    MaskCase(
        "sentences that share a referent",
        (R._sentence(I, S), R._sentence(A, S), R._mention(A, C),
         R._mention(B, C), R._sentence(B, T), R._sentence(J, T)),
        lambda i, j, f: any(
            f.same("sentence", i, a) and f.same("sentence", j, b) and f.meet("mention", a, b)
            for a in f.sets("mention") for b in f.sets("mention")
        ),
    ),
    MaskCase(
        "neighbouring sentences", (R._sentence(I, S), R._sentence(J, T), window(1)(S, T)),
        lambda i, j, f: abs(f.of("sentence")[i] - f.of("sentence")[j]) <= 1,
    ),
    # trees
    MaskCase(
        "parent", (R._parent(I, J),), lambda i, j, f: (i, j) in f.pairs("parent"),
    ),
    MaskCase(
        "siblings", (R._parent(I, P), R._parent(J, P)),
        lambda i, j, f: f.of("parent").get(i, -1) == f.of("parent").get(j, -2),
    ),
    MaskCase(
        "ancestors", (R._above(I, J),), lambda i, j, f: j in f.ancestors(i), ANCESTOR,
    ),
    MaskCase(
        "ancestors, self and children", (R._near(I, J),),
        lambda i, j, f: i == j or j in f.ancestors(i) or f.of("parent").get(j) == i,
        (*ANCESTOR, *derived(R.above(I, J), R.parent(J, I), (R.h(I), R.h(J), AT.eq(I, J)))),
    ),
    MaskCase(
        "same depth, not a sibling", (*same("depth"), ~R.brother(I, J)),
        lambda i, j, f: f.same("depth", i, j)
        and f.of("parent").get(i, -1) != f.of("parent").get(j, -2),
        (R.brother(I, J) <= (R.parent(I, P), R.parent(J, P)),),
    ),
    MaskCase(
        "grandparents", (R._parent(I, P), R._parent(P, J)),
        lambda i, j, f: f.of("parent").get(f.of("parent").get(i, -1), -1) == j,
    ),
    # time
    MaskCase(
        "earlier by time", (R._clock(I, A), R._clock(J, B), AT.leq(B, A)),
        lambda i, j, f: f.of("clock")[j] <= f.of("clock")[i],
    ),
    MaskCase(
        "the last ten minutes", (R._time(I, A), R._time(J, B), AT.sub(A, B, D), AT.leq(D, 10)),
        lambda i, j, f: 0 <= f.of("time")[i] - f.of("time")[j] <= 10,
    ),
    MaskCase(
        "arrived before sent", (R._time(I, A), R._arrived(J, B), AT.lt(B, A), EARLIER),
        lambda i, j, f: f.of("arrived")[j] < f.of("time")[i] and j <= i,
    ),
    MaskCase(
        "earlier of the same speaker",
        (*same("speaker"), R._clock(I, A), R._clock(J, B), AT.gt(A, B)),
        lambda i, j, f: f.same("speaker", i, j) and f.of("clock")[j] < f.of("clock")[i],
    ),
    MaskCase(
        "not in the future of another clock",
        (R._clock(I, A), R._arrived(J, B), ~R._late(A, B)),
        lambda i, j, f: not f.of("arrived")[j] > f.of("clock")[i],
        (R.late(A, B) <= (R.clock(I, A), R.arrived(J, B), AT.gt(B, A)),),
    ),
    # space
    MaskCase(
        "same cell", (R._x(I, A), R._y(I, B), R._x(J, A), R._y(J, B)),
        lambda i, j, f: f.same("x", i, j) and f.same("y", i, j),
    ),
    MaskCase(
        "neighbouring cells",
        (R._x(I, A), R._x(J, B), window(1)(A, B), R._y(I, P), R._y(J, Q), window(1)(P, Q)),
        lambda i, j, f: abs(f.of("x")[i] - f.of("x")[j]) <= 1
        and abs(f.of("y")[i] - f.of("y")[j]) <= 1,
    ),
    MaskCase(
        "row or column", NEAR,
        lambda i, j, f: f.same("x", i, j) or f.same("y", i, j),
        derived((R.x(I, A), R.x(J, A)), (R.y(I, A), R.y(J, A))),
    ),
    MaskCase(
        "below in the same column", (*same("x"), R._y(I, A), R._y(J, B), AT.lt(A, B)),
        lambda i, j, f: f.same("x", i, j) and f.of("y")[i] < f.of("y")[j],
    ),
    # graphs
    MaskCase("edges", (R._edge(I, J),), lambda i, j, f: (i, j) in f.pairs("edge")),
    MaskCase(
        "two hops", (R._edge(I, P), R._edge(P, J)),
        lambda i, j, f: any((p, j) in f.pairs("edge") for p in f.sets("edge").get(i, ())),
    ),
    MaskCase(
        "edges or self", NEAR, lambda i, j, f: i == j or (i, j) in f.pairs("edge"),
        derived(R.edge(I, J), (R.h(I), R.h(J), AT.eq(I, J))),
    ),
    MaskCase(
        "not banned, and earlier", (~R.banned(I, J), EARLIER),
        lambda i, j, f: (i, j) not in f.pairs("banned") and j <= i,
    ),
    MaskCase(
        "edges between different groups",
        (R._edge(I, J), R._group(I, A), R._group(J, B), AT.neq(A, B)),
        lambda i, j, f: (i, j) in f.pairs("edge") and not f.same("group", i, j),
    ),
    # code
    MaskCase(
        "names in scope", (R._scope(J, A, B), AT.leq(A, I), AT.lt(I, B)),
        lambda i, j, f: _scope(f)[j][0] <= i < _scope(f)[j][1],
    ),
    MaskCase(
        "inside of my scope", (R._scope(I, A, B), AT.leq(A, J), AT.lt(J, B)),
        lambda i, j, f: _scope(f)[i][0] <= j < _scope(f)[i][1],
    ),
    MaskCase(
        "a window of each token", (R._reach(I, A), AT.sub(I, J, D), AT.leq(D, A)),
        lambda i, j, f: 0 <= i - j <= f.of("reach")[i],
    ),
    # permissions
    MaskCase(
        "level at most mine", (R._level(I, A), R._level(J, B), AT.leq(B, A)),
        lambda i, j, f: f.of("level")[j] <= f.of("level")[i],
    ),
    MaskCase(
        "groups that my owner is in", (R._owner(I, A), R._member(A, B), R._group(J, B)),
        lambda i, j, f: (f.of("owner")[i], f.of("group")[j]) in f.pairs("member"),
    ),
    MaskCase(
        "not in any of my groups, same language",
        (*same("language"), ~R.shares(I, J)),
        lambda i, j, f: f.same("language", i, j)
        and (f.of("owner")[i], f.of("group")[j]) not in f.pairs("member"),
        (R.shares(I, J) <= (R.owner(I, A), R.member(A, B), R.group(J, B)),),
    ),
    # padding, global tokens, types
    MaskCase(
        "padding", (R._real(I), R._real(J)),
        lambda i, j, f: (i,) in f.pairs("real") and (j,) in f.pairs("real"),
    ),
    MaskCase(
        "padding, causal", (R._real(J), EARLIER), lambda i, j, f: (j,) in f.pairs("real") and j <= i
    ),
    MaskCase(
        "global tokens", NEAR,
        lambda i, j, f: abs(i - j) <= 2 or (i,) in f.pairs("global") or (j,) in f.pairs("global"),
        derived(
            (R.h(I), R.h(J), window(2)(I, J)), (R._global(I), R.h(J)), (R.h(I), R._global(J))
        ),
    ),
    MaskCase(
        "compatible types", (R._type(I, A), R._compatible(A, B), R._type(J, B)),
        lambda i, j, f: (f.of("type")[i], f.of("type")[j]) in f.pairs("compatible"),
    ),
    MaskCase(
        "types that are not compatible", (R._type(I, A), R._type(J, B), ~R.compatible(A, B)),
        lambda i, j, f: (f.of("type")[i], f.of("type")[j]) not in f.pairs("compatible"),
    ),
    MaskCase(
        "the same hash bucket, not itself", (*same("bucket"), AT.neq(I, J)),
        lambda i, j, f: f.same("bucket", i, j) and i != j,
    ),
    MaskCase(
        "layers of a feed-forward graph", (R._layer(I, A), AT.next(B, A), R._layer(J, B)),
        lambda i, j, f: f.of("layer")[j] + 1 == f.of("layer")[i],
    ),
    MaskCase(
        "positions of one residue", (AT.mod(I, 4, A), AT.mod(J, 4, A)),
        lambda i, j, f: i % 4 == j % 4,
    ),
    MaskCase(
        "the first four tokens, and a multiple", (AT.lt(J, 4), AT.mod(I, 3, 0)),
        lambda i, j, f: j < 4 and i % 3 == 0,
    ),
    MaskCase(
        "translation: the other language, same sentence",
        (*same("sentence"), R._language(I, A), R._language(J, B), AT.neq(A, B)),
        lambda i, j, f: f.same("sentence", i, j) and not f.same("language", i, j),
    ),
]  # fmt: skip


def _scope(known: Known) -> dict[int, tuple[int, int]]:
    return {i: (a, b) for i, a, b in known.pairs("scope")}
