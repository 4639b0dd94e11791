"""Rules of a mask whose heads have constants, or a variable twice: they are compared with the terms
of the condition, so a rule for each head of an attention is not listed as pairs."""

import pytest
import torch

from edgewise import F, Program, R, V

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.errors.EdgewiseWarning")
H, I, J, A, B, C, S = (getattr(V, name) for name in "HIJABCS")  # noqa: E741
N = 9
random = torch.Generator().manual_seed(0)
SPEAKER, DOCUMENT = torch.randint(3, (2, N), generator=random).tolist()
FACTS = [
    *(R.speaker(i, s) for i, s in enumerate(SPEAKER)),
    *(R.document(i, s) for i, s in enumerate(DOCUMENT)),
    *(R.kind(s, name) for s, name in enumerate(("ann", "bob", 7))),
]
SAME = (R.speaker(I, S), R.speaker(J, S))
LISTED = {"a value of a token", "a string"}  # rules of values, not of pairs
CASES = {
    "a constant": (
        (R._near(1, I, J),), [R.near(1, I, J) <= SAME, R.near(2, I, J) <= R.speaker(I, J)],
    ),
    "another constant": (
        (R._near(3, I, J),), [R.near(1, I, J) <= SAME, R.near(2, I, J) <= R.speaker(I, J)],
    ),
    "a value of a token": (
        (R._speaker(I, A), R._near(A, J)),
        [R.near(1, J) <= R.document(J, 0), R.near(2, J) <= R.document(J, 1)],
    ),
    "a string": (
        (R._speaker(I, A), R._kind(A, B), R._near(B, J)),
        [R.near("ann", J) <= R.document(J, 0), R.near(7, J) <= R.document(J, 1)],
    ),
    "one rule": ((R._speaker(I, A), R._near(A, J)), [R.near(1, J) <= R.document(J, 0)]),
    "a variable twice": ((R._near(I, J),), [R.near(A, A) <= R.speaker(A, B), R.near(I, J) <= SAME]),
    "values that are equal": (
        (R._speaker(I, A), R._document(J, B), R._near(A, B)), [R.near(A, A) <= R.speaker(C, A)],
    ),
    "negated": (
        (R._speaker(I, A), R._speaker(J, A), ~R.near(1, I, J)),
        [R.near(1, I, I) <= R.speaker(I, S), R.near(2, I, J) <= SAME],
    ),
    "negated, of values": (
        (R._speaker(I, A), R._document(J, B), ~R.near(A, B)),
        [R.near(A, 1) <= R.speaker(C, A), R.near(0, B) <= R.document(C, B)],
    ),
    "a constant in both": (
        (R._near(0, I, J),), [R.near(0, A, J) <= (R.speaker(A, S), R.document(J, S))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_is_what_the_reference_says(name):
    conditions, rules = CASES[name]
    program = Program([*rules, *_attention((), conditions)])
    x = torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    known = repr(program)
    stated = [a for a in FACTS if f".{a.relation}(" in known or f"._{a.relation}(" in known]
    model = program.compile(R.out, dtype=torch.float64)
    found = model.rows(model.ground(facts=stated, x=x))
    solved = program.solve([*stated, *(R.x(i)[row] for i, row in enumerate(x))])[R.out(I)]
    assert list(dict(found)) == list(solved)
    if solved:
        torch.testing.assert_close(found.data, torch.stack(list(solved.values())))
    (mask,) = (line for line in str(model.explain()).splitlines() if "mask = " in line)
    assert ("near" in mask) == (name in LISTED)


def _attention(heads, conditions):
    score = (R.x(*heads, J).T, R.x(*heads, I), *conditions)
    return [
        (R.w(*heads, I, J) <= score) | [F.product, F.softmax_agg(agg_terms=[J])],
        (R.out(*heads, I) <= (R.w(*heads, I, J), R.x(*heads, J))) | [F.product],
    ]


def test_a_rule_for_each_head():
    """Each head has the mask of its own rule; one without a rule attends to nothing."""
    rules = [
        R.sees(0, I, J) <= (R.speaker(I, S), R.speaker(J, A), abs(I - J) <= 1),
        R.sees(1, I, J) <= SAME,
        R.sees(1, I, J) <= (R.document(I, S), R.document(J, S)),
    ]
    model = Program([*rules, *_attention((H,), (R._sees(H, I, J),))]).compile(R.out, fill=0.0)
    model = model.double()
    x = torch.randn(3, N, 4, dtype=torch.float64, requires_grad=True)
    tables = {
        name: torch.stack([torch.arange(N), torch.tensor(values)])
        for name, values in (("speaker", SPEAKER), ("document", DOCUMENT))
    }
    place = torch.arange(N)
    same = [values[1, :, None] == values[1] for values in tables.values()]
    mask = torch.stack([(place[:, None] - place).abs() <= 1, same[0] | same[1]])
    expected = (x[:2] @ x[:2].mT).masked_fill(~mask, -torch.inf).softmax(-1) @ x[:2]
    out = model(x=x, **tables)
    torch.testing.assert_close(out[:2], expected)
    assert not out[2].any()
    torch.testing.assert_close(
        torch.autograd.grad(out.square().sum(), x), torch.autograd.grad(expected.square().sum(), x)
    )
    step = model.explain(x=x, **tables, stage="kernels").to_json()["kernels"]["relations"][-1]
    assert step["steps"][0]["pairs"] == mask.sum()
