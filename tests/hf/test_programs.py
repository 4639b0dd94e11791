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


@pytest.mark.parametrize("cache", [None, "dynamic", "static"])
@pytest.mark.parametrize("make", [models.llama, models.gpt2])
def test_generation(make, cache):
    """Also of rows that are padded on the left."""
    model = models.built(make)
    real = torch.arange(6) >= torch.tensor([[0], [4]])
    how = {"max_new_tokens": 5, "do_sample": False, "attention_mask": real.long()}
    wanted = hf.use(copy.deepcopy(model), window(2)).generate(tokens(2, 6), **how)
    hf.use(model, rules((causal() & window(2))(V.I, V.J)))
    how |= {"use_cache": False} if cache is None else {"cache_implementation": cache}
    assert torch.equal(model.generate(tokens(2, 6), **how), wanted)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_after_keys_are_evicted(cache):
    """The model's own window is 5 tokens, the text becomes longer; rows are padded on the left."""
    model = models.built(models.mistral)
    real = torch.arange(6) >= torch.tensor([[0], [4]])
    how = {"max_new_tokens": 8, "do_sample": False, "attention_mask": real.long()}
    hf.use(model, rules((causal() & window(2))(V.I, V.J)))
    wanted = model.generate(tokens(2, 6), use_cache=False, **how)
    assert torch.equal(model.generate(tokens(2, 6), cache_implementation=cache, **how), wanted)


def test_generation_with_a_bias():
    model = models.built(models.t5)
    how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    biased = rules((causal() & window(2))(V.I, V.J), score=(R.bias(V.H, V.I, V.J),))
    hf.use(model, {"decoder": biased})
    wanted = model.generate(tokens(2, 6), use_cache=False, **how)
    assert torch.equal(model.generate(tokens(2, 6), **how), wanted)


def test_a_program_that_reads_queries_of_other_tokens_has_no_cache():
    both = (R.q(V.H, V.J), R.v(V.H, V.I), causal()(V.I, V.J))
    average = (R.out(V.H, V.I) <= both) | [F.elproduct]
    model = hf.use(models.built(models.llama), Program([average]))
    how = {"max_new_tokens": 2, "do_sample": False}
    model.generate(tokens(1, 5), use_cache=False, **how)
    with pytest.raises(EdgewiseError, match="queries of other tokens"):
        model.generate(tokens(1, 5), **how)


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
        "missing-relation",
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
    """A program for one length is checked at that length."""
    place = R.v(V.H, V.I)[W.place(V.I)[4, 4]]
    program = Program([R.out(V.H, V.I) <= place], domains={V.I: 9})
    assert hidden(hf.use(models.built(models.llama), program), tokens()).isfinite().all()


def dropping(p):
    from transformers import BertConfig, BertModel

    config = {**models.TEXT, **models.QUIET, "attention_probs_dropout_prob": p}
    torch.manual_seed(0)
    return BertModel(BertConfig(**config)).double()


def test_dropout_of_the_model_is_that_of_the_softmax():
    """In training its mean is the output without; the weights of the rules stay parameters."""
    program = rules(window(2)(V.I, V.J), score=(R.k(V.H, V.J)["near":1, 4],))
    model = hf.use(dropping(0.3), program)
    before = dict(model.named_parameters())
    attention = model.encoder.layer[0].attention
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    wanted = attention.eval()(x)[0]
    torch.manual_seed(0)
    drawn = attention.train().self(x.expand(6000, -1, -1))[0]
    torch.testing.assert_close(drawn.mean(0), attention.eval().self(x)[0][0], atol=5e-3, rtol=0.0)
    assert drawn.std(0).min() > 1e-3
    torch.testing.assert_close(attention.eval()(x)[0], wanted)
    assert {n: id(p) for n, p in model.named_parameters()} == {n: id(p) for n, p in before.items()}
    loss = hidden(model.train(), tokens()).square().sum()
    assert models.gradients(model, loss).keys() >= {n for n in before if "near" in n}


def test_dropout_of_weights_is_that_of_a_mask():
    """A key with all the weight is dropped with chance p and divided by 1 - p otherwise."""
    model = hf.use(dropping(0.25), rules(window(0)(V.I, V.J))).train()
    inner = model.encoder.layer[0].attention.self
    x = torch.randn(200, 9, 16, dtype=torch.float64)
    out = inner(x)[0].unflatten(-1, (4, 4))
    value = inner.value(x).unflatten(-1, (4, 4)) / 0.75
    dropped = (out == 0).all(-1)
    torch.testing.assert_close(out[~dropped], value[~dropped])
    assert abs(dropped.double().mean().item() - 0.25) < 0.02


def test_dropout_of_the_rules_takes_the_place_of_the_models():
    own = Program([R.out(V.H, V.I) <= F.dropout(0.5)(R.v(V.H, V.I))])
    model = hf.use(dropping(0.3), own).train()
    inner = model.encoder.layer[0].attention.self
    x = torch.randn(50, 9, 16, dtype=torch.float64)
    out = inner(x)[0]
    assert abs((out == 0).double().mean().item() - 0.5) < 0.03


def test_dropout_without_a_softmax_says_so():
    model = hf.use(dropping(0.3), Program([R.out(V.H, V.I) <= R.v(V.H, V.I)]))
    assert hidden(model.eval(), tokens()).isfinite().all()
    with pytest.raises(EdgewiseError, match="no rule of the program has a softmax"):
        hidden(model.train(), tokens())


def test_weights_of_a_program_are_refused():
    model = hf.use(models.built(models.bert), rules())
    with pytest.raises(EdgewiseError, match="output_attentions"):
        model(tokens(), output_attentions=True)
