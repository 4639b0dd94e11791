"""Facts that are added, changed and removed give what the facts that are left give from scratch."""

import random

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, rows
from edgewise.functions import AGGREGATION, DEFINITIONS, Law
from edgewise.graphs import causal, ring
from edgewise.language import nodes
from edgewise.update.removal import UnknownFact

SIZE = 7
RULES = {
    "two hops": [
        R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)[W.w[2, 2]]),
        (R.out(V.X) <= (R.edge(V.X, V.Y), R.h(V.Y))) | [F.product, F.tanh],
    ],
    "softmax": [
        (R.w(V.X, V.Y) <= (R.edge(V.X, V.Y), R.x(V.Y)[W.a[1, 2]]))
        | [F.product, F.softmax_agg(agg_terms=[V.Y])],
        (R.out(V.X) <= (R.w(V.X, V.Y), R.x(V.Y))) | [F.product],
    ],
    "negation": [
        R.some(V.X) <= R._edge(V.X, V.Y),
        R.leaf(V.X) <= (R.x(V.X), ~R.some(V.X)),
        R.out(V.Y) <= (R.x(V.Y), R.edge(V.Y, V.X), R._leaf(V.X)),
        R.out(V.X) <= (R.leaf(V.X), ~R.edge(V.X, V.X)),
    ],
    "conditions": [R.out(V.X) <= (R.x(V.X), R._edge(V.X, V.Y), R.special.lt(V.X, V.Y))],
    "a family": [R.out(V.H, V.X) <= (R.x(V.X)[W.f(V.H)[2, 2]], R._edge(V.X, V.Y))],
    "a pattern": [R.out(V.I) <= (R._x(V.I), R.x(V.J), causal()(V.I, V.J))],
    "a pattern with an end": [R.out(V.I) <= (R._x(V.I), R.x(V.J), ring(1)(V.I, V.J))],
    "a fact and a rule": [
        R.top(V.X) <= R.x(V.X),
        R.top / 1 | [F.max],
        R.out(V.X) <= (R.top(V.X), R._x(V.X)),
    ],
    "paths": [
        R.p(V.X, V.Y) <= R.edge(V.X, V.Y),
        R.p(V.X, V.Z) <= (R._p(V.X, V.Y), R.edge(V.Y, V.Z)),
        (R.out(V.X) <= (R.p(V.X, V.Y), R.x(V.Y))) | [F.product],
    ],
    "shortest paths": [
        (R.d(V.Y) <= (R.d(V.X), R.edge(V.X, V.Y))) | [F.min_agg],
        R.d(0)[0.0].fixed(),
        R.d / 1 | [F.min],
        (R.out(V.X) <= (R.d(V.X), R.x(V.X))) | [F.product],
    ],
    "a minimum that may fall": [
        (R.d(V.Y) <= (R.d(V.X)[-0.5], R._edge(V.X, V.Y), R.special.lt(V.X, V.Y))) | [F.max_agg],
        R.d(V.X) <= (R.sum(V.X), R.special.lt(V.X, 2)),
        R.sum(V.X) <= R.x(V.X)[W.one[1, 2]],
        R.d / 1 | [F.max],
        (R.out(V.X) <= (R.d(V.X), R.x(V.X))) | [F.product],
    ],
    "a recurrence": [
        (R.h(V.T) <= (R.x(V.T), R.h(V.S)[W.u[2, 2]], R.special.next(V.S, V.T))) | [F.tanh],
        R.h(V.T) <= (R.x(V.T), ~R.edge(V.T, V.T)),
        R.out(V.T) <= R.h(V.T),
    ],
}


def facts_of(choices: random.Random) -> dict[tuple[str, tuple[int, ...]], nodes.Atom]:
    pairs = [(x, y) for x in range(SIZE) for y in range(SIZE) if choices.random() < 0.3]
    found = [R.edge(x, y)[choices.randint(1, 9) / 4] for x, y in pairs]
    found += [R.x(i)[[choices.uniform(-1, 1), choices.uniform(-1, 1)]] for i in range(SIZE)]
    return {(fact.relation, fact.terms): fact for fact in found}


def assert_edits(program: Program, seed: int, edits: int = 5) -> None:
    """Random edits, each compared with grounding what is left."""
    choices = random.Random(seed)
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    every = facts_of(choices)
    every = {key: fact for key, fact in every.items() if key[0] in model.inputs}
    known = {key: fact for key, fact in every.items() if choices.random() < 0.7}
    updating = model.updating(facts=list(known.values()))
    for _ in range(edits):
        removed = [known.pop(key) for key in list(known) if choices.random() < 0.15]
        other = facts_of(choices)
        added = {key: fact for key, fact in (every | other).items() if choices.random() < 0.15}
        added = {key: fact for key, fact in added.items() if key[0] in model.inputs}
        known |= added
        plain = [nodes.Atom(fact.relation, fact.terms) for fact in removed]
        found = dict(updating.edit(add=list(added.values()), remove=plain))
        wanted = dict(model.rows(model.ground(facts=list(known.values()))))
        assert set(found) == set(wanted)
        for atom, value in wanted.items():
            torch.testing.assert_close(found[atom], value.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", RULES)
def test_edits_equal_computing_everything(name: str, seed: int) -> None:
    assert_edits(Program(RULES[name], domains={V.H: 2}), seed)


AGGREGATIONS = [name for name, entry in DEFINITIONS.items() if entry.kind == AGGREGATION]


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_aggregation(name: str) -> None:
    body = (R.edge(V.X, V.Y), R.x(V.Y)[W.a[1, 2]])
    heads, function, out = R.h(V.X), getattr(F, name), R.h(V.X)
    if name == "topk_agg":
        function = F.topk_agg(k=2)
    elif Law.NORMALISES in DEFINITIONS[name]:
        heads, function, out = R.h(V.X, V.Y), function(agg_terms=[V.Y]), R.h(V.X, V.Y)
    elif name == "concat_agg":  # as many groundings for every rule head
        body = (R.x(V.X), R._edge(V.X, V.Y))
        heads, out = R.h(V.X, V.Y), R._h(V.X, V.Y)
    rules = [(heads <= body) | [F.product, function], R.out(V.X) <= (out, ~R.edge(V.X, V.X))]
    assert_edits(Program(rules), seed=0)


def chain(n: int) -> list[nodes.Atom]:
    return [
        *(R.edge(i, i + 1)[0.5] for i in range(n - 1)),
        *(R.x(i)[[float(i), 1.0]] for i in range(n)),
    ]


def test_only_what_an_edit_reaches_is_computed() -> None:
    model = Program(RULES["two hops"]).compile(R.out, seed=0, dtype=torch.float64)
    updating = model.updating(facts=chain(200))
    updating.remove([R.edge(7, 8)])
    assert updating.computed == {}
    assert updating.changes["h"].removed.tolist() == [[7]]
    assert updating.changes["out"].removed.tolist() == [[6], [7]]
    updating.edit(add=[R.x(100)[[5.0, 5.0]]], remove=[R.edge(3, V.Y)])
    assert updating.computed == {"h": 1, "out": 1}
    assert updating.rows == {"h": 197, "out": 194}


def test_a_value_that_comes_out_the_same_changes_nothing_behind_it() -> None:
    rules = [
        (R.most(V.X) <= (R._edge(V.X, V.Y), R.x(V.Y))) | [F.max_agg],
        R.out(V.X) <= R.most(V.X),
    ]
    model = Program(rules).compile(R.out, dtype=torch.float64)
    updating = model.updating(
        facts=[R.edge(0, i) for i in range(4)] + [R.x(i)[float(i)] for i in range(4)]
    )
    updating.add([R.x(1)[2.5]])
    assert updating.computed == {"most": 1}
    assert not {"most", "out"} & updating.changes.keys()


def test_all_that_matches_an_atom_with_variables_is_removed() -> None:
    model = Program(RULES["two hops"]).compile(R.out, seed=0, dtype=torch.float64)
    updating = model.updating(facts=[*chain(9), R.edge(2, 2)[1.0]])
    updating.remove([R.edge(V.X, V.X)])
    assert dict(updating.output).keys() == dict(model.rows(model.ground(facts=chain(9)))).keys()
    updating.remove([R.edge(V.X, V.Y), R.edge(V.X, V.X)])
    assert not dict(updating.output)


def test_a_fact_of_the_program_returns() -> None:
    model = Program([R.scale[2.0].fixed(), R.out(V.X) <= (R.x(V.X), R.scale)]).compile(R.out)
    updating = model.updating(facts=[R.x(0)[1.0], R.scale[5.0]])
    assert float(dict(updating.output)[R.out(0)]) == 6.0
    assert float(dict(updating.remove([R.scale]))[R.out(0)]) == 3.0
    with pytest.raises(UnknownFact, match="fact of the program"):
        updating.remove([R.scale])


@pytest.mark.parametrize(
    ("atom", "message"),
    [
        (R.edge(0, 7), "not among the facts"),
        (R.edge("a", V.X), None),
        (R.edge("a", "b"), "not among the facts"),
        (R.h(0), "not among the facts"),
        (R.egde(0, 1), "did you mean `edge`"),
        (R.edge(0), "has 2 terms"),
        ("edge", "not an atom"),
    ],
)
def test_what_is_not_there_cannot_be_removed(atom, message) -> None:
    model = Program(RULES["two hops"]).compile(R.out, seed=0, dtype=torch.float64)
    updating = model.updating(facts=chain(4))
    before = dict(updating.output)
    if message is None:
        updating.remove([atom])
    else:
        with pytest.raises(EdgewiseError, match=message):
            updating.edit(add=[R.x(9)[[1.0, 2.0]]], remove=[R.edge(0, 1), atom])
    assert dict(updating.output).keys() == before.keys()


def test_tensors_beside_facts() -> None:
    model = Program(RULES["two hops"]).compile(R.out, seed=0, dtype=torch.float64)
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    weights = torch.ones(4, dtype=torch.float64)
    updating = model.updating(x=x, edge=rows(pairs, weights))
    updating.edit(remove=[R.edge(1, 2)], edge=rows(torch.tensor([[4], [0]]), weights[:1]))
    left = torch.tensor([[0, 2, 3, 4], [1, 3, 4, 0]])
    wanted = dict(model.rows(model.ground(x=x, edge=rows(left, weights))))
    found = dict(updating.output)
    assert found.keys() == wanted.keys()
    for atom, value in wanted.items():
        torch.testing.assert_close(found[atom], value.detach())
    with pytest.raises(EdgewiseError, match="one sample"):
        updating.add(x=torch.zeros(2, 5, 2, dtype=torch.float64))


def test_it_is_shown() -> None:
    model = Program(RULES["two hops"]).compile(R.out, seed=0)
    updating = model.updating(facts=chain(5))
    updating.remove([R.x(4)])
    assert repr(updating).splitlines() == [
        "relation  rows  recomputed  added  removed  changed",
        "h            3           0      0        1        0",
        "out          2           0      0        1        0",
    ]


def shortest(function, **options):
    rules = [
        (R.dist(V.X) <= R.start(V.X)) | [F.min_agg],
        (R.dist(V.Y) <= (R.dist(V.X), R.edge(V.X, V.Y))) | [function, F.min_agg],
        R.dist / 1 | [F.min],
    ]
    return Program(rules, **options).compile(R.dist)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (shortest(F.sum), None),
        (shortest(F.sum, rounds=8), "round before"),
        (shortest(F.product), "minimum or maximum around a cycle"),
    ],
)
def test_recursion_says_why_all_rows_are_recomputed(model, reason):
    facts = [R.start(0)[1.0], *(R.edge(i, i + 1)[1.0] for i in range(6))]
    updating = model.updating(facts=facts)
    assert not updating.reasons
    found = updating.add([R.edge(4, 5)[0.5]])
    facts[5] = R.edge(4, 5)[0.5]
    every = dict(model.updating(facts=facts).output.items())
    assert {atom: value.item() for atom, value in found.items()} == {
        atom: value.item() for atom, value in every.items()
    }
    if reason is None:
        assert not updating.reasons
        assert updating.computed == {"dist": 2}
    else:
        assert reason in updating.reasons["dist"]
        assert f"all rows of dist: {updating.reasons['dist']}" in repr(updating)
        assert updating.computed == {"dist": 7}
