"""A rule program as the attention of Hugging Face models."""

import copy

import hf_models as models
import pytest
import torch
from test_use import hidden, tokens

from edgewise import EdgewiseError, F, Program, R, V, W, hf
from edgewise.graphs import causal, window

MAKERS = {"bert": models.bert, "llama": models.llama}


def rules(*condition, score=()):
    """Attention as rules: a score for each pair, a softmax, a weighted sum."""
    return Program(
        [
            (R.weights(V.H, V.I, V.J) <= (R.k(V.H, V.J).T @ R.q(V.H, V.I), *score, *condition))
            | [F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
        ]
    )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_rules_of_attention_are_the_graph(make, padded):
    graph = causal() & window(2)
    model = models.built(make)
    other = hf.use(copy.deepcopy(model), graph)
    hf.use(model, rules(graph(V.I, V.J)))
    real = torch.arange(9) < torch.tensor([[9], [5]]) if padded else torch.ones(2, 9).bool()
    ours, theirs = (hidden(m, tokens(), real.long())[real] for m in (model, other))
    torch.testing.assert_close(ours, theirs)
    mine, yours = (
        models.gradients(m, out.square().sum()) for m, out in ((model, ours), (other, theirs))
    )
    assert mine.keys() == yours.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], yours[name])


def test_weights_of_the_rules_are_parameters_of_each_layer():
    program = rules(score=(R.k(V.H, V.J)["near":1, 4],))
    model = models.built(models.bert)
    before = set(model.state_dict())
    hf.use(model, program)
    added = set(model.state_dict()) - before
    assert len(added) == 2
    grads = models.gradients(model, hidden(model, tokens()).square().sum())
    assert all(grads[name].abs().sum() > 0 for name in added)
    assert set(hf.restore(model).state_dict()) == before


def test_a_bias_is_a_relation():
    model = models.built(models.t5).encoder
    other = hf.use(copy.deepcopy(model), window(2))
    hf.use(model, rules(window(2)(V.I, V.J), score=(R.bias(V.H, V.I, V.J),)))
    torch.testing.assert_close(hidden(model, tokens()), hidden(other, tokens()))


def test_generation_without_a_cache():
    model = models.built(models.llama)
    how = {"max_new_tokens": 5, "do_sample": False}
    wanted = hf.use(copy.deepcopy(model), window(2)).generate(tokens(1, 5), **how)
    hf.use(model, rules((causal() & window(2))(V.I, V.J)))
    assert torch.equal(model.generate(tokens(1, 5), use_cache=False, **how), wanted)
    with pytest.raises(EdgewiseError, match="a cache"):
        model.generate(tokens(1, 5), use_cache=True, **how)


BAD = {
    "a program that looks ahead": (
        models.llama,
        rules(),
        "bad-program",
        "query 0 attends to key 1",
    ),
    "a program that looks far ahead": (
        models.gpt2,
        rules((causal() | window(1).shift(0, 8))(V.I, V.J)),
        "bad-program",
        "query 0 attends to key 8",
    ),
    "a program that looks further back": (
        models.mistral,
        rules(causal()(V.I, V.J)),
        "bad-program",
        "attends to key 0",
    ),
    "a vector of another length": (
        models.llama,
        Program([R.out(V.H, V.I) <= R.v(V.H, V.I)[3, 4]]),
        "bad-program",
        "the model expects",
    ),
    "a row for all heads": (
        models.llama,
        Program([R.out(V.I) <= R.v(V.H, V.I)]),
        "bad-program",
        "derive `R.out(V.H, V.I)`",
    ),
    "a program that reads something else": (
        models.bert,
        Program([R.out(V.H, V.I) <= R.x(V.H, V.I)]),
        "bad-program",
        "reads `x`",
    ),
    "an output of another shape": (
        models.bert,
        Program([R.out(V.I) <= R.v(V.H, V.I)]),
        "bad-program",
        "derive `R.out(V.H, V.I)`",
    ),
    "no output": (models.bert, Program([R.h(V.H, V.I) <= R.v(V.H, V.I)]), "unknown-output", "out"),
    "a bias that no rule reads": (models.t5, rules(), "unsupported-argument", "a score bias"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_attention_says_so(case):
    make, program, code, text = BAD[case]
    model = models.built(make)
    more = {"decoder_input_ids": tokens()} if make is models.t5 else {}
    with pytest.raises(EdgewiseError) as caught:
        hidden(hf.use(model, program), tokens(), **more)
    assert caught.value.code == code
    assert text in str(caught.value)


def test_places_may_have_weights():
    """What is asked of a longer text is asked of this one where there is none longer."""
    place = R.v(V.H, V.I)[W.place(V.I)[4, 4]]
    program = Program([R.out(V.H, V.I) <= place], domains={V.I: 9})
    assert hidden(hf.use(models.built(models.llama), program), tokens()).isfinite().all()
