"""Without a token, an edge or a head: what is computed again equals computing all of it."""

from dataclasses import replace

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V
from edgewise.attention_graphs import without
from edgewise.pruning.head_importance import without_head
from edgewise.pruning.layers import head_layers
from tests.pruning.test_prune import MODELS


def compiled(name):
    program, output, inputs = MODELS[name]
    return program.compile(output, seed=3, dtype=torch.float64).eval(), inputs


@pytest.mark.parametrize("name", ["bert", "gpt2", "encoder", "vit"])
def test_without_a_head(name):
    model, inputs = compiled(name)
    if name == "encoder":
        inputs = {"x": inputs["x"][:1]}
    found = without(model, removed="head:1,2", **inputs)
    with without_head(model, head_layers(model.program)[1], 2):
        expected = model(**inputs)
    torch.testing.assert_close(found.after, expected.detach())
    torch.testing.assert_close(found.before, model(**inputs).detach())
    assert 0 < found.rows < found.all_rows
    assert not any(found.changes[0])
    assert all(found.changes[1][:4])  # the last token of one is padding


def test_without_a_token_is_its_mask():
    model, inputs = compiled("bert")
    found = without(model, removed="token:1", **inputs)
    mask = inputs["mask"].clone()
    mask[:, 1] = 0
    torch.testing.assert_close(found.after, model(**inputs | {"mask": mask}).detach())
    assert found.rows < found.all_rows


def test_without_a_token_of_a_causal_model():
    """Nobody else attends to it: as where a pattern leaves its column out."""
    model, inputs = compiled("gpt2")
    found = without(model, removed="token:2", **inputs)
    rules, _, _ = MODELS["gpt2"]
    other = (
        Program(
            [
                replace(rule, body=(*rule.body, R._sees(V.I, V.J)))
                if rule.head.relation.endswith("weights")
                else rule
                for rule in rules.rules
            ],
            domains={V.H: 4, V.I: 9},
        )
        .compile(R.logits, dtype=torch.float64, seed=3)
        .eval()
    )
    other.load_state_dict(model.state_dict())
    pairs = [(i, j) for i in range(5) for j in range(5) if j != 2 or i == 2]
    expected = other(sees=torch.tensor(pairs).T, **inputs).detach()
    torch.testing.assert_close(found.after, expected)
    assert not any(found.changes[0][:3])
    assert all(found.changes[0][3:])


def rules():
    weights = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    out = (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    return Program([weights, out]).compile(R.h, dtype=torch.float64)


def test_without_an_edge_the_other_weights_sum_to_one():
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    found = without(rules(), removed="edge:0,2,1", x=x)
    scores = x @ x.T
    scores[2, 1] = -torch.inf
    torch.testing.assert_close(found.after, scores.softmax(-1) @ x)
    assert [bool(c) for c in found.changes[0]] == [False, False, True, False]
    assert found.json()["recomputed"]["rows"] == found.rows
    assert "the edge `2` → `1` of layer 0" in repr(found)


def test_a_query_with_one_key_then_attends_to_nothing():
    x = torch.ones(1, 3, dtype=torch.float64)
    assert not without(rules(), removed="edge:0,0,0", x=x).after.any()


@pytest.mark.parametrize(
    ("removed", "code"),
    [
        ("head:0,1", "no-such-head"),
        ("head:1,0", "no-such-head"),
        ("token:4", "no-such-head"),
        ("token:-1", "no-such-head"),
        ("edge:0,0,9", "no-such-head"),
        ("edge:0,0", "bad-counterfactual"),
        ("word:0", "bad-counterfactual"),
        ("token:x", "bad-counterfactual"),
        ("", "bad-counterfactual"),
    ],
)
def test_what_does_not_exist(removed, code):
    with pytest.raises(EdgewiseError) as found:
        without(rules(), removed=removed, x=torch.ones(4, 3, dtype=torch.float64))
    assert found.value.code == code


def test_an_edge_that_is_not_in_the_graph_is_refused():
    model, inputs = compiled("gpt2")
    assert without(model, removed="edge:1,2,1", **inputs).change > 0
    with pytest.raises(EdgewiseError, match="layer 1 the query 1 does not attend to the key 2"):
        without(model, removed="edge:1,1,2", **inputs)


def test_a_model_without_attention():
    plain = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
    with pytest.raises(EdgewiseError) as found:
        without(plain, removed="token:0", x=torch.ones(3, 2))
    assert found.value.code == "no-attention"
