"""Masks written as queries over data of their own: code scopes, permissions of groups of groups,
calendars, space, threads, versions, aliases, imports. Most read relations that rules derive.

As `mask_corpus`: `facts_of_rules(n, seed)` gives tables of integers for n tokens, and each mask is
written once more in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from edgewise import R, V
from tests.ground.mask_corpus import AT, EARLIER, I, J, Known, MaskCase, Tables, per_token

A, B, C, D, E, G, K = (getattr(V, name) for name in "ABCDEGK")
M, N, P, Q, S, T, U, W, X, Y = (getattr(V, name) for name in "MNPQSTUWXY")
Allowed = Callable[[int, int], bool]


def _pairs(*columns):
    return np.unique(np.stack(columns), axis=1)


def facts_of_rules(n: int, seed: int = 0) -> Tables:
    """What is known of n tokens: of code, users, calendars, places, messages, versions."""
    random = np.random.default_rng(seed)
    tokens, drawn = np.arange(n), random.integers
    blocks, names, messages = max(n // 8, 4), max(n // 10, 3), max(n // 3, 4)
    users, groups, documents = max(n // 5, 4), 6, max(n // 6, 3)
    entities, files, side = max(n // 6, 4), max(n // 5, 2), max(int(n**0.5), 4)
    start = drawn(0, 20 * n, n)
    one, other = drawn(0, documents, documents), drawn(0, documents, documents)
    apart = one != other
    return {
        "block": per_token(n, np.sort(drawn(0, blocks, n))),
        "inner": np.array([(b, drawn(0, b)) for b in range(1, blocks)]).T,
        "uses": per_token(n, drawn(0, names, n)),
        "defines": _pairs(drawn(0, n, n // 2), drawn(0, names, n // 2)),
        "user": per_token(n, drawn(0, users, n)),
        "in_group": _pairs(drawn(0, users, users), drawn(0, groups, users)),
        "subgroup": np.array([[0, 1, 2, 4], [1, 3, 3, 5]]),
        "paper": per_token(n, np.sort(drawn(0, documents, n))),
        "readable": _pairs(drawn(0, documents, 3 * documents), drawn(0, groups, 3 * documents)),
        "denied": _pairs(drawn(0, groups, groups), drawn(0, documents, groups)),
        "event": np.stack([tokens, drawn(0, max(n // 20, 2), n), start, start + drawn(1, 200, n)]),
        "attends": _pairs(drawn(0, n, 2 * n), drawn(0, max(n // 4, 3), 2 * n)),
        "at": np.stack([tokens, drawn(0, side, n), drawn(0, side, n)]),
        "message": per_token(n, np.sort(drawn(0, messages, n))),
        "answers": np.array([(m, drawn(0, m)) for m in range(1, messages)]).T,
        "author": per_token(messages, drawn(0, users, messages)),
        "muted": _pairs(drawn(0, users, users), drawn(0, users, users)),
        "file": per_token(n, drawn(0, files, n)),
        "version": np.stack([tokens, drawn(0, 4, n), drawn(0, 6, n)]),
        "names": _pairs(drawn(0, n, n // 2), drawn(0, entities, n // 2)),
        "alias": _pairs(drawn(0, entities, entities // 2), drawn(0, entities, entities // 2)),
        "cites": _pairs(one, other),
        "imports": _pairs(np.maximum(one, other)[apart], np.minimum(one, other)[apart]),
        "exported": tokens[random.random(n) < 0.5][None],
        "radius": per_token(n, drawn(0, 9, n)),
        "local": np.stack([tokens, np.cumsum(drawn(0, 3, n)), drawn(0, 4, n)]),
        "zone": np.array([[0, 1, 2, 3], [0, 5, 9, 13]]),
        "clearance": per_token(users, drawn(0, 5, users)),
        "secrecy": per_token(n, drawn(0, 5, n)),
        "topic": per_token(n, drawn(0, 12, n)),
        "needs": _pairs(drawn(0, users, 3 * users), drawn(0, 12, 3 * users)),
        "priority": per_token(n, drawn(0, 10, n)),
        "link": _pairs(drawn(0, n, 3 * n), drawn(0, n, 3 * n)),
    }  # fmt: skip


def known(found: Callable[[Known], Allowed]) -> Callable[[int, int, Known], bool]:
    """A condition that is looked up: what it reads of facts is computed once."""
    last: list[tuple[Known, Allowed]] = []

    def allowed(i: int, j: int, facts: Known) -> bool:
        if not last or last[0][0] is not facts:
            last[:] = [(facts, found(facts))]
        return last[0][1](i, j)

    return allowed


def above(facts: Known, name: str) -> Callable[[int], frozenset[int]]:
    """What a relation leads to, in any number of steps, and the start."""

    @lru_cache(None)
    def reached(a: int) -> frozenset[int]:
        return frozenset([a]).union(*(reached(c) for b, c in facts.pairs(name) if b == a))

    return reached


@known
def in_scope(f):
    outer, uses, defines, block = above(f, "inner"), f.of("uses"), f.sets("defines"), f.of("block")
    return lambda i, j: j <= i and uses[i] in defines.get(j, ()) and block[j] in outer(block[i])


@known
def unshadowed(f):
    outer, uses, defines, block = above(f, "inner"), f.of("uses"), f.sets("defines"), f.of("block")
    named = {(block[j], name) for j, own in defines.items() for name in own}

    def allowed(i, j):
        name, own = uses[i], block[j]
        between = [c for c in outer(block[i]) if c != own and own in outer(c)]
        visible = name in defines.get(j, ()) and own in outer(block[i])
        return visible and not any((c, name) in named for c in between)

    return allowed


@known
def permitted(f):
    up, own, user, paper = above(f, "subgroup"), f.sets("in_group"), f.of("user"), f.of("paper")
    readable, denied = f.pairs("readable"), f.pairs("denied")
    groups = {u: frozenset().union(*map(up, own.get(u, ()))) for u in user.values()}

    def allowed(i, j):
        mine = groups[user[i]]
        reads = any((paper[j], g) in readable for g in mine)
        return reads and not any((g, paper[j]) in denied for g in mine)

    return allowed


def overlap(f, i, j):
    (_, start, end), (_, other, last) = (rows(f, "event")[t] for t in (i, j))
    return start < last and other < end


@lru_cache(8)
def rows(f, name):
    return {row[0]: row[1:] for row in f.pairs(name)}


def apart(i, j, f):
    (x, y), (p, q) = (rows(f, "at")[t] for t in (i, j))
    return abs(x - p), abs(y - q)


@known
def thread(f):
    up, of, author, muted = above(f, "answers"), f.of("message"), f.of("author"), f.pairs("muted")
    return lambda i, j: of[j] in up(of[i]) and (author[of[i]], author[of[j]]) not in muted


@known
def latest(f):
    file, major = f.of("file"), {i: a for i, a, _ in f.pairs("version")}

    def allowed(i, j):
        between = (major[j] < major[k] <= major[i] for k in file if file[k] == file[i])
        return file[i] == file[j] and major[j] <= major[i] and not any(between)

    return allowed


@known
def coreferent(f):
    both = f.pairs("alias") | {(b, a) for a, b in f.pairs("alias")}
    names, none = f.sets("names"), frozenset()

    @lru_cache(None)
    def same(a):
        found, new = {a}, {a}
        while new:
            new = {c for b, c in both if b in new} - found
            found |= new
        return frozenset(found)

    return lambda i, j: any(same(a) & names.get(j, none) for a in names.get(i, none))


@known
def imported(f):
    up, own, exported = above(f, "imports"), f.of("paper"), f.pairs("exported")
    return lambda i, j: own[i] == own[j] or (own[j] in up(own[i]) and (j,) in exported)


@known
def universal(f):
    zone = f.of("zone")
    time = {i: a - zone[z] for i, a, z in f.pairs("local")}
    return lambda i, j: time[j] <= time[i]


@known
def cleared(f):
    user, most, secrecy = f.of("user"), f.of("clearance"), f.of("secrecy")
    topic, needs = f.of("topic"), f.pairs("needs")
    return lambda i, j: secrecy[j] <= most[user[i]] and (user[i], topic[j]) in needs


ENCLOSES = (
    R.encloses(B, B) <= R._block(I, B),
    R.encloses(B, C) <= R._inner(B, C),
    R.encloses(B, C) <= (R._inner(B, P), R.encloses(P, C)),
)
SHADOWED = (
    *ENCLOSES,
    R.inside(B, C) <= R._inner(B, C),
    R.inside(B, C) <= (R._inner(B, P), R.inside(P, C)),
    R.named(B, N) <= (R._defines(I, N), R._block(I, B)),
    R.shadowed(B, C, N) <= (R._encloses(B, D), R._inside(D, C), R._named(D, N)),
)
GROUPS = (
    R.of_group(U, G) <= R._in_group(U, G),
    R.of_group(U, G) <= (R.of_group(U, P), R._subgroup(P, G)),
    R.no(U, D) <= (R._of_group(U, G), R._denied(G, D)),
)
THREAD = (
    R.under(M, M) <= R._message(I, M),
    R.under(M, N) <= (R._answers(M, P), R.under(P, N)),
)
SAME = (
    R.known_as(A, B) <= R._alias(A, B),
    R.known_as(A, B) <= R._alias(B, A),
    R.same(A, A) <= R._names(I, A),
    R.same(A, B) <= (R._same(A, P), R._known_as(P, B)),
)
NEAR = (R._near(I, J),)
OVERLAP = (A < D, C < B)

DERIVED = [
    MaskCase(
        "definitions in enclosing blocks",
        (R._uses(I, N), R._defines(J, N), R._block(I, B), R._block(J, C), R._encloses(B, C),
         EARLIER), in_scope, ENCLOSES,
    ),
    MaskCase(
        "definitions that no inner block shadows",
        (R._uses(I, N), R._defines(J, N), R._block(I, B), R._block(J, C), R._encloses(B, C),
         ~R.shadowed(B, C, N)), unshadowed, SHADOWED,
    ),
    MaskCase(
        "documents that a group of mine may read and none is denied",
        (R._user(I, U), R._of_group(U, G), R._paper(J, D), R._readable(D, G), ~R.no(U, D)),
        permitted, GROUPS,
    ),
    MaskCase(
        "overlapping events of a person", (R._event(I, P, A, B), R._event(J, P, C, D), *OVERLAP),
        lambda i, j, f: overlap(f, i, j) and rows(f, "event")[i][0] == rows(f, "event")[j][0],
    ),
    MaskCase(
        "overlapping events of an attendee",
        (R._attends(I, P), R._attends(J, P), R._event(I, X, A, B), R._event(J, Y, C, D), *OVERLAP),
        lambda i, j, f: overlap(f, i, j) and f.meet("attends", i, j),
    ),
    MaskCase(
        "earlier, without conflict", (~R.conflict(I, J), EARLIER),
        lambda i, j, f: j <= i and not (
            overlap(f, i, j) and rows(f, "event")[i][0] == rows(f, "event")[j][0]),
        (R.conflict(I, J) <= (R._event(I, P, A, B), R._event(J, P, C, D), *OVERLAP),),
    ),
    MaskCase(
        "within a radius",
        (R._at(I, X, Y), R._at(J, P, Q), (X - P) * (X - P) + (Y - Q) * (Y - Q) <= 4),
        lambda i, j, f: sum(d * d for d in apart(i, j, f)) <= 4,
    ),
    MaskCase(
        "knight's moves", (R._at(I, X, Y), R._at(J, P, Q), abs(X - P) * abs(Y - Q) == 2),
        lambda i, j, f: sorted(apart(i, j, f)) == [1, 2],
    ),
    MaskCase(
        "right of it and above", (R._at(I, X, Y), R._at(J, P, Q), X <= P, Y <= Q),
        lambda i, j, f: all(np.less_equal(*(rows(f, "at")[t] for t in (i, j)))),
    ),
    MaskCase(
        "the thread above, without the muted",
        (R._message(I, M), R._message(J, N), R._under(M, N), R._author(M, U), R._author(N, W),
         ~R.muted(U, W)), thread, THREAD,
    ),
    MaskCase(
        "the latest version that is not after mine",
        (R._file(I, W), R._file(J, W), R._version(I, A, B), R._version(J, C, D), C <= A,
         ~R.newer(W, C, A)), latest,
        (R.has(W, C) <= (R._file(I, W), R._version(I, C, D)),
         R.newer(W, C, A) <= (R._has(W, C), R._has(W, A), R._has(W, P), C < P, P <= A)),
    ),
    MaskCase(
        "coreferent over aliases", (R._names(I, A), R._same(A, B), R._names(J, B)), coreferent, SAME
    ),
    MaskCase(
        "exports of imported modules, or mine", NEAR, imported,
        (R.needs_module(M, N) <= R._imports(M, N),
         R.needs_module(M, N) <= (R._imports(M, P), R.needs_module(P, N)),
         R.near(I, J) <= (R._paper(I, M), R._paper(J, M)),
         R.near(I, J) <= (R._paper(I, M), R._needs_module(M, N), R._paper(J, N), R._exported(J))),
    ),
    MaskCase(
        "cited documents, or earlier in mine", NEAR,
        lambda i, j, f: (f.same("paper", i, j) and j <= i)
        or (f.of("paper")[i], f.of("paper")[j]) in f.pairs("cites"),
        (R.near(I, J) <= (R._paper(I, D), R._paper(J, D), EARLIER),
         R.near(I, J) <= (R._paper(I, D), R._cites(D, E), R._paper(J, E))),
    ),
    MaskCase(
        "radii that overlap", (R._radius(I, A), R._radius(J, B), abs(I - J) <= A + B),
        lambda i, j, f: abs(i - j) <= f.of("radius")[i] + f.of("radius")[j],
    ),
    MaskCase(
        "earlier in universal time",
        (R._local(I, A, S), R._zone(S, P), R._local(J, B, T), R._zone(T, Q), B - Q <= A - P),
        universal,
    ),
    MaskCase(
        "cleared, with a need to know",
        (R._user(I, U), R._clearance(U, A), R._secrecy(J, B), B <= A, R._topic(J, T),
         R._needs(U, T)), cleared,
    ),
    MaskCase(
        "of higher priority, or near", NEAR,
        lambda i, j, f: f.of("priority")[j] > f.of("priority")[i] or abs(i - j) <= 2,
        (R.near(I, J) <= (R._priority(I, A), R._priority(J, B), B > A),
         R.near(I, J) <= (R._priority(I, A), R._priority(J, B), abs(I - J) <= 2)),
    ),
    MaskCase(
        "children in a heap", (AT.leq(1, J), 2 * I + 1 <= J, J <= 2 * I + 2),
        lambda i, j, f: j in (2 * i + 1, 2 * i + 2),
    ),
    MaskCase(
        "linked to the same, not to one another", (R._link(I, K), R._link(J, K), ~R.link(I, J)),
        lambda i, j, f: f.meet("link", i, j) and (i, j) not in f.pairs("link"),
    ),
]  # fmt: skip
