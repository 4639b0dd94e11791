"""Negated derived relations in a mask: what positive conditions imply is dropped, and one of the
conditions that are left does not hold, so that the pairs of values are not listed."""

import re

import pytest
import torch

from edgewise import F, Program, R, V

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.errors.EdgewiseWarning")
I, J, A, B, C, K = (getattr(V, name) for name in "IJABCK")  # noqa: E741
AT = R.special
BOTH = (R._clock(I, A), R._arrived(J, B))
LATE = R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), AT.gt(B, A))
CASES = {
    "another clock": ((*BOTH, ~R.late(A, B)), [LATE], True),
    "two rules": (
        (*BOTH, ~R.late(A, B)),
        [LATE, R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), AT.lt(A, 3))],
        True,
    ),
    "a rule of a rule": (
        (*BOTH, ~R.odd(A, B)),
        [
            R.odd(A, B) <= (R.clock(I, A), R.arrived(J, B), ~R.late(A, B)),
            R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), R.ban(A, B)),
        ],
        True,
    ),
    "an atom is left": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), R.ban(A, B))],
        True,
    ),
    "a negated atom is left": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), ~R.ban(A, B))],
        True,
    ),
    "two are left": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), AT.gt(B, A), R.ban(A, B))],
        True,
    ),
    "two are left of each of two rules": (
        (*BOTH, ~R.late(A, B), AT.lt(J, 6)),
        [
            R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), AT.gt(B, A), R.ban(A, B)),
            R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), AT.lt(B, 2), AT.lt(A, 4)),
        ],
        True,
    ),
    "a band": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.clock(K, A), R.arrived(C, B), AT.gt(B, A), B - A < 3)],
        True,
    ),
    "one of two": (
        (*BOTH, R._real(K), R._clock(K, C), ~R.late(A, B), ~R.late(C, B)), [LATE], True,
    ),
    "too many": (
        (*BOTH, ~R.late(A, B)),
        [
            R.late(A, B)
            <= (R.clock(K, A), R.arrived(C, B), R.ban(A, B), AT.lt(A, k), AT.lt(B, k + 1))
            for k in range(3)
        ],
        False,
    ),
    "another value is left": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.clock(K, A), R.arrived(K, C), R.arrived(J, B), AT.gt(B, C))],
        False,
    ),
    "not implied": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.real(K), R.clock(K, A), R.arrived(C, B), AT.gt(B, A))],
        False,
    ),
    "nothing is left": (
        (*BOTH, ~R.late(A, B)), [R.late(A, B) <= (R.clock(K, A), R.arrived(C, B))], False,
    ),
    "another relation of the same values": (
        (*BOTH, ~R.late(A, B)),
        [R.late(A, B) <= (R.arrived(K, A), R.clock(C, B), AT.gt(B, A))],
        False,
    ),
    "twice, of which one is kept": (
        (*BOTH, ~R.late(A, B), R._late(K, C), R._clock(I, K), R._arrived(J, C)), [LATE], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("several", [False, True], ids=["one value", "several values"])
@pytest.mark.parametrize("name", CASES)
def test_is_what_the_reference_says(name, several):
    conditions, rules, unfolds = CASES[name]
    attends = (R.w(I, J) <= (R.x(J).T, R.x(I), *conditions)) | [
        F.product,
        F.softmax_agg(agg_terms=[J]),
    ]
    program = Program([*rules, attends, (R.out(I) <= (R.w(I, J), R.x(J))) | [F.product]])
    n, random = 7, torch.Generator().manual_seed(len(name))
    more = 4 if several else 0

    def table(count):
        return torch.randint(count, (n + more,), generator=random).tolist()

    tokens = [*range(n), *table(n)[:more]]
    found = [R.clock(i, a) for i, a in zip(tokens, table(6), strict=True)]
    found += [R.arrived(i, b) for i, b in zip(tokens, table(6), strict=True)]
    found += [R.ban(a, b) for a, b in zip(table(6), table(6), strict=True)]
    found += [R.real(i) for i in range(0, n, 2)]
    known = repr(program)
    stated = list({repr(a): a for a in found if f"R.{a.relation}(" in known}.values())
    x = torch.randn(n, 3, dtype=torch.float64, generator=random)
    model = program.compile(R.out, dtype=torch.float64)
    found = model.rows(model.ground(facts=stated, x=x))
    solved = program.solve([*stated, *(R.x(i)[row] for i, row in enumerate(x))])[R.out(I)]
    assert list(dict(found)) == list(solved)
    if solved:
        torch.testing.assert_close(found.data, torch.stack(list(solved.values())))
    (mask,) = (line for line in str(model.explain()).splitlines() if "mask = " in line)
    assert bool(re.search(r"~R._?(late|odd)", mask)) != unfolds
