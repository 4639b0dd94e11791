"""Rules that differ in facts and their weight are one gather, with the weights they had."""

import pytest
import torch

from edgewise import F, Program, R, V, W, ragged, rows

STACK = "stack embeddings"
KINDS = ["carbon", "nitrogen", "oxygen"]
RULES = [R.h(V.A) <= R[kind](V.A)[3, 1] for kind in KINDS]
FACTS = [
    *(R.carbon(i) for i in (0, 2, 3)),
    *(R.nitrogen(i)[0.5] for i in (1, 3)),
    R.oxygen("o")[2.0],
]


def both(rules, output=R.h, **options):
    program = Program(rules, **options)
    made = program.compile(output, dtype=torch.float64, seed=0)
    apart = program.compile(output, dtype=torch.float64, seed=0, without=[STACK])
    return made, apart


def gathers(model, data):
    return model.explain(data, json=True)["kernels"]["one gather"]


def assert_same(one, other, facts=None, **inputs):
    pairs = [(m, m.ground(facts=facts, **inputs)) for m in (one, other)]
    found = [m.rows(data) for m, data in pairs]
    assert list(dict(found[0])) == list(dict(found[1]))
    torch.testing.assert_close(found[0].data, found[1].data, atol=1e-12, rtol=1e-12)
    for relation in (r for r in found if r.data.requires_grad):
        different = torch.arange(1, relation.data.numel() + 1).view_as(relation.data)
        (relation.data * different).sum().backward()
    assert dict(one.named_parameters()).keys() == dict(other.named_parameters()).keys()
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, atol=1e-12, rtol=1e-12, msg=name)
    return [gathers(m, data) for m, data in pairs]


def test_three_kinds_are_one_gather():
    names = [f"h.{kind}" for kind in KINDS]
    assert assert_same(*both(RULES), FACTS) == [[names], []]


def test_it_says_so():
    model, _ = both(RULES)
    shown = repr(model.explain(model.ground(facts=FACTS)))
    assert "one gather: h.carbon and h.nitrogen and h.oxygen" in shown
    assert "stack embeddings: rules that differ in facts" in shown


def test_a_batch_is_stacked_too():
    batch = ragged([FACTS, FACTS[:2], [R.oxygen(1)[3.0]], []])
    assert len(assert_same(*both(RULES), batch)[0]) == 1


def test_a_kind_without_facts_has_no_gradient():
    assert assert_same(*both(RULES), FACTS[:5])[0] == [["h.carbon", "h.nitrogen"]]


@pytest.mark.parametrize("listed", [[], [F.tanh], [F.max_agg], [F.relu, F.avg_agg]])
def test_functions_of_the_rules_stay(listed):
    rules = [rule | listed for rule in RULES] if listed else RULES
    line = [R.h / 1 | [F.tanh]]
    other = [R.h(V.A)[3, 1] <= R.other(V.A)]
    more = [*FACTS, R.other(0)[1.5], R.other(9)[1.0]]
    assert len(assert_same(*both([*rules, *line, *other]), more)[0]) == 1


@pytest.mark.parametrize(
    ("why", "rules"),
    [
        ("one rule", RULES[:1]),
        ("not a sum", [*RULES, R.h / 1 | [F.max]]),
        ("counted", [rule | [F.count_agg] for rule in RULES]),
        ("a weight on the head", [R.h(V.A)[2.0] <= R[kind](V.A)[3, 1] for kind in KINDS]),
        ("several groundings", [R.h <= R[kind](V.A)[3, 1] for kind in KINDS]),
        ("a condition", [R.h(V.A) <= (R[kind](V.A)[3, 1], R._carbon(V.A)) for kind in KINDS]),
        ("no weights", [R.h(V.A) <= R[kind](V.A) for kind in KINDS]),
        ("derived", [R.h(V.A) <= R.g(V.A)[3, 1], R.h(V.A) <= R.f(V.A)[3, 1],
                     *(R[n](V.A) <= R.carbon(V.A) for n in "gf")]),
        ("facts of the program", [*RULES[:2], R.h(V.A) <= R.e(V.A)[3, 1], R.e(0)[1.0],
                                  R.nitrogen(0)[1.0]]),
    ],
)  # fmt: skip
def test_what_is_not_alike_is_not_stacked(why, rules):
    facts = [f for f in FACTS if any(f.relation in repr(rule) for rule in rules)]
    assert assert_same(*both(rules), facts)[0] == [], why


def test_vectors_and_given_rows_are_not_stacked():
    vectors = [R.h(V.A) <= R[kind](V.A)[3, 2] for kind in KINDS]
    facts = [R.carbon(0)[[1.0, 2.0]], R.nitrogen(1)[[1.0, 2.0]]]
    assert assert_same(*both(vectors), facts)[0] == []
    given = {kind: rows(torch.arange(2), torch.ones(2).double()) for kind in KINDS}
    assert assert_same(*both(RULES), **given)[0] == []


def test_different_shapes_are_different_stacks():
    wide = [R.g(V.A) <= R[kind](V.A)[5, 1] for kind in KINDS]
    both_ = [R.out(V.A) <= (R.h(V.A)[1, 3], R.g(V.A)[1, 5])]
    found = assert_same(*both([*RULES, *wide, *both_], R.out), FACTS)[0]
    assert sorted(len(names) for names in found) == [3, 3]


def test_saved_weights_fit_with_and_without():
    made, apart = both(RULES)
    apart.load_state_dict(made.state_dict())
    assert sorted(made.state_dict()) == [f"h.{kind}" for kind in KINDS]


def test_equal_rows_of_a_family_by_their_own_key():
    """A row that stands for several keys has no member of its own."""
    program = Program([R.out(V.T, V.I) <= R.z(V.T, V.I)[W.u(V.T)[2, 2]]], domains={V.T: 3})
    facts = [R.z(t, i)[[1.0, 2.0]] for t in range(3) for i in range(4)]
    one, other = (
        program.compile(R.out, dtype=torch.float64, seed=0, without=w)
        for w in ([], ["lift equal rows"])
    )
    assert_same(one, other, facts)
