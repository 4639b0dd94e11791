"""Which relations are computed by class, how many classes there are, and why others are not."""

import os
import re
from pathlib import Path

import pytest
import torch

from edgewise import F, Program, R, V, ragged, rows

BESIDE = Path(__file__).parents[3] / "shared" / "data"
FOLDER = Path(os.environ.get("EDGEWISE_DATA", BESIDE)) / "relational" / "mutagenesis"
LIFT = "lift equal rows"
EDGE = R._edge(V.J, V.I)
LAYERS = [
    R.h0(V.I) <= R.x(V.I)[4, 2],
    *(
        rule
        for n in range(2)
        for rule in (
            (R[f"h{n + 1}"](V.I)[4, 4] <= (R[f"h{n}"](V.J), EDGE)) | [F.tanh],
            R[f"h{n + 1}"](V.I) <= R[f"h{n}"](V.I)[4, 4],
        )
    ),
    (R.out <= R.h2(V.I)) | [F.avg_agg],
]
PATH = [R.edge(a, b) for n in range(19) for a, b in ((n, n + 1), (n + 1, n))]
SAME = [R.x(n)[[1.0, 2.0]] for n in range(20)]


def found(rules, facts, output=R.out, without=(), **options):
    model = Program(rules, **options).compile(output, without=without, seed=0)
    data = model.ground(facts=facts) if not isinstance(facts, dict) else model.ground(**facts)
    return {r["relation"]: r for r in model.explain(data, json=True)["kernels"]["relations"]}


def classes(relations):
    return {name: part["classes"] for name, part in relations.items() if "classes" in part}


def test_the_nodes_of_a_path_are_as_many_as_their_distances_from_an_end():
    assert classes(found(LAYERS, SAME + PATH)) == {"h0": 1, "h1": 2, "h2": 3}


def test_copies_of_a_graph_are_one():
    once = found(LAYERS, ragged([SAME + PATH]))
    assert classes(found(LAYERS, ragged([SAME + PATH] * 5))) == classes(once) | {"out": 1}


def test_groundings_are_those_of_one_head_for_each_class():
    relations = found(LAYERS, SAME + PATH)
    assert [step["groundings"] for step in relations["h1"]["steps"][:2]] == [3, 1]
    assert relations["h1"]["layouts"] == [{"kind": "dense", "axes": [20], "rows": 20}]


def test_switched_off_there_are_no_classes():
    relations = found(LAYERS, SAME + PATH, without=[LIFT])
    assert classes(relations) == {}
    assert not any("not by class" in part for part in relations.values())
    assert [step["groundings"] for step in relations["h1"]["steps"][:2]] == [38, 20]


def test_it_reads_well(assert_golden):
    model = Program(LAYERS).compile(R.out, seed=0)
    shown = repr(model.explain(model.ground(facts=SAME + PATH), stage="kernels"))
    counts = re.sub(r", \d+ FLOPs.*|\n +all: .*", "", shown)  # of the kernels, not of the rules
    assert_golden("explain/lifted.txt", counts)


def test_values_that_need_gradients_are_not_shared():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    x = torch.ones(3, 2)
    still = {"x": rows(torch.arange(3), x), "edge": edges}
    assert classes(found(LAYERS, still)) == {"h0": 1, "h1": 1, "h2": 1}
    learnt = {"x": rows(torch.arange(3), x.clone().requires_grad_()), "edge": edges}
    assert classes(found(LAYERS, learnt)) == {}
    assert classes(found(LAYERS, {"x": x, "edge": edges})) == {}, "it may come with every step"


@pytest.mark.parametrize(
    ("function", "reason"),
    [(F.dropout(0.5), "dropout"), (F.call(torch.nn.Dropout(0.5)), "a module may tell rows apart")],
)
@pytest.mark.parametrize("where", ["rule", "body", "line"])
def test_what_may_tell_rows_apart_is_computed_row_by_row(function, reason, where):
    x, listed = R.x(V.I), [function] if where == "rule" else []
    body = function(x) if where == "body" else x
    rules = [(R.h(V.I) <= body) | listed, R.out(V.I) <= R.h(V.I)[2, 2]]
    rules += [R.h / 1 | [function]] if where == "line" else []
    relations = found(rules, SAME)
    assert classes(relations) == {}
    assert reason in relations["h"]["not by class"]
    assert "not by class" not in found(rules, SAME, without=[LIFT])["h"]
    model = Program(rules).compile(R.out, seed=0)
    assert len(model(model.ground(facts=SAME)).data.unique(dim=0)) > 1, "every row draws its own"


def test_recursion_is_computed_row_by_row():
    rules = [
        R.out(V.T) <= (R.x(V.T), R.hidden.first(V.T)),
        R.out(V.T) <= (R.out(V.S)[0.5], R.special.next(V.S, V.T), R._x(V.T)),
    ]
    relations = found(rules, [*SAME, R.first(0)])
    assert relations["out"]["not by class"] == "recursion computes row by row"


def test_what_recursion_reads_is_whole():
    rules = [
        R.h(V.T) <= R.x(V.T)[2, 2],
        R.out(V.T) <= (R.h(V.T), R.hidden.first(V.T)),
        R.out(V.T) <= (R.out(V.S)[0.5], R.h(V.T), R.special.next(V.S, V.T)),
    ]
    assert classes(found(rules, [*SAME, R.first(0)])) == {"h": 1}
    one, other = (
        Program(rules).compile(R.out, seed=0, without=without) for without in ([], [LIFT])
    )
    a, b = (m(m.ground(facts=[*SAME, R.first(0)])).data for m in (one, other))
    torch.testing.assert_close(a, b)


def test_where_it_does_not_pay_it_says_so():
    facts = [R.x(n)[[float(n), 1.0]] for n in range(19)] + [R.x(19)[[0.0, 1.0]]]
    relations = found(LAYERS[:1], facts, R.h0)
    assert relations["h0"]["not by class"] == "20 rows are 19 classes"
    assert "classes" not in relations["h0"]


def test_many_rows_are_judged_by_some_of_them():
    count = 20_000
    different = rows(torch.arange(count), torch.arange(count, dtype=torch.float32))
    equal = rows(torch.arange(count), torch.arange(count, dtype=torch.float32) // 1000)
    rules = [R.out(V.I) <= R.x(V.I)[2.0]]
    assert classes(found(rules, {"x": different})) == {}
    assert classes(found(rules, {"x": equal})) == {"out": 20}


@pytest.mark.skipif(
    not FOLDER.exists(), reason="no mutagenesis files in EDGEWISE_DATA or ../shared"
)
def test_molecules_by_class_are_molecules_atom_by_atom():
    text = (FOLDER / "examples.txt").read_text()
    facts = [
        [f.atom for f in Program.parse(line).facts if not f.atom.relation.startswith("b_")]
        for line in text.splitlines()
    ]
    types = sorted({a.relation for sample in facts for a in sample if len(a.terms) == 1})
    rules = [R.x(V.A) <= R[kind](V.A)[2,] for kind in types]
    bonds = [R.edge(V.I, V.J) <= R._bond(V.I, V.J, V.B)]
    program = Program([*rules, *bonds, *LAYERS])
    by_class, by_row = (
        program.compile(R.out, seed=0, dtype=torch.float64, without=w) for w in ([], [LIFT])
    )
    batch = ragged(facts)
    data = by_class.ground(facts=batch)
    values = by_class(data).data, by_row(by_row.ground(facts=batch)).data
    torch.testing.assert_close(*values, atol=1e-12, rtol=1e-12)
    for value in values:
        value.sum().backward()
    for (name, one), (_, other) in zip(
        by_class.named_parameters(), by_row.named_parameters(), strict=True
    ):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-9, rtol=1e-9, msg=name)
    kernels = by_class.explain(data, json=True)["kernels"]["relations"]
    counts = {r["relation"]: r.get("classes") for r in kernels}
    assert (counts["h0"], counts["h1"], counts["h2"]) == (36, 186, 620)
