"""Every Transformer with every option: it builds, is fused, and equals the reference."""

from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_models import SIZES, TEXT, facts

from edgewise import EdgewiseError, R, numbers, zoo
from edgewise.graphs import full, per_head, per_layer, window
from edgewise.zoo import block

MODELS = [zoo.encoder, *(m for m in zoo.TRANSFORMERS if issubclass(m.Config, block.Block))]
OPTIONS = {
    "window": {"graph": "window(1)"},
    "layers": {"graph": "per_layer(window(1), full())", "layers": 2},
    "heads": {"graph": "per_head(window(1) - window(0), full())"},
    "rules": {"graph": "@sub(I, J, D), @leq(D, 1)"},
    "rows without keys": {"graph": "strided(2) - window(0)"},
    "pre": {"norm": "pre"},
    "post": {"norm": "post"},
    "no norm": {"norm": "none"},
    "no scale": {"scale": "none"},
    "scale": {"scale": 0.3},
    "no feed-forward": {"feed_forward": "none"},
    "gated": {"feed_forward": "swiglu"},
    "plain": {"feed_forward": "gelu"},
    "hidden size": {"feed_forward": 3},
    "sum": {"aggregation": "sum", "positions": "none"},
    "mean": {"aggregation": "mean", "positions": "none", "graph": "window(1)"},
    "max": {"aggregation": "max", "positions": "none", "graph": "per_head(window(1), full())"},
    **{p: {"positions": p} for p in block.POSITIONS},
}
UNFUSED = (zoo.adaptive_span,)  # weights are masked again after the softmax
LISTED = {(zoo.transformer_xl, "rules"), (zoo.compressive, "rules")}


def name_of(model):
    return model.__name__.rpartition(".")[2]


def small(model, **options):
    of_text = model in zoo.TRANSFORMERS and model is not zoo.vit
    base = TEXT | {"layers": 2 if model is zoo.sparse else 1} if of_text else {}
    own = {}
    if "layers" in options and "decoder_layers" in model.Config.__dataclass_fields__:
        own = {"decoder_layers": options["layers"]}
    return model.Config(**base | SIZES.get(model, {}) | {"dropout": 0.0} | own | options)


def config_or_none(model, chosen):
    """None where the model refuses an option, which it does with an error of its own."""
    try:
        return small(model, **chosen)
    except EdgewiseError as error:
        if error.code != "bad-config" or not error.help:
            raise
    return None


def assert_equals_reference(model, config, *, fused=True, gradients=False):
    program = model.program(config)
    heads = {rule.head.relation: rule.head for rule in program.rules}
    out = heads["out" if model is zoo.bert else "logits" if "logits" in heads else "out"]
    compiled = program.compile(R[out.relation], seed=0, fill=0.0, dtype=torch.float64).eval()
    given = [fact for fact in facts(model) if fact.relation in compiled.inputs]
    weights = {name: compiled.weight(name) for name in compiled._paths}
    found = dict(compiled.rows(compiled.ground(facts=given)))
    wanted = program.solve(given, weights=weights)[out]
    wanted = dict(wanted) if hasattr(wanted, "items") else {out: wanted}
    assert found
    assert set(map(repr, found)) == set(map(repr, wanted))
    for atom, value in wanted.items():
        torch.testing.assert_close(found[atom], value, atol=1e-9, rtol=1e-9)
    if fused:
        assert not compiled.explain(json=True, stage="passes")["passes"]["not fused"]
    if gradients:
        learnt = [w for w in weights.values() if w.requires_grad]
        ours, theirs = (
            torch.autograd.grad(
                sum(v.square().sum() for v in values), learnt, retain_graph=True, allow_unused=True
            )
            for values in (found.values(), wanted.values())
        )
        for one, other in zip(ours, theirs, strict=True):
            zero = torch.zeros(())
            torch.testing.assert_close(
                zero if one is None else one.sum(),
                zero.double() if other is None else other.sum(),
                atol=1e-8,
                rtol=1e-8,
                check_dtype=False,
            )


def cases():
    """All options of two models, and in turns five of every other."""
    for at, model in enumerate(MODELS):
        every = list(OPTIONS)
        turn = [every[(5 * at + k) % len(every)] for k in range(5)]
        for option in every if model in (zoo.gpt2, zoo.bert) else turn:
            yield pytest.param(model, option, id=f"{name_of(model)}-{option}")


@pytest.mark.parametrize(("model", "option"), list(cases()))
def test_an_option_is_what_its_rules_say_or_refused(model, option):
    config = config_or_none(model, OPTIONS[option])
    if config is None:
        return
    fused = model not in UNFUSED and (model, option) not in LISTED
    assert_equals_reference(model, config, fused=fused)


@pytest.mark.parametrize("option", OPTIONS)
def test_the_towers_of_clip_have_options(option):
    tower = {"size": 4, "heads": 2, "hidden": 4, "layers": 1} | OPTIONS[option]
    text, pixels = zoo.clip.Tower(**tower), zoo.clip.Tower(**tower)
    config = zoo.clip.Config(6, 4, 5, 2, 1, 3, 2, text, pixels)
    program = zoo.clip.program(config)
    tokens = [R.token(i)[float(i + 1)] for i in range(4)]
    read = [*tokens, *(R.end(i)[float(i == 3)] for i in range(4)), *facts(zoo.vit)]
    model = program.compile(R.logits, seed=0, dtype=torch.float64)
    weights = {name: model.weight(name) for name in model._paths}
    (found,) = dict(model.rows(model.ground(facts=read))).values()
    torch.testing.assert_close(found, program.solve(read, weights=weights)[R.logits])
    assert not model.explain(json=True, stage="passes")["passes"]["not fused"]


def test_what_is_refused_is_what_cannot_be():
    """Most options fit most models."""
    fits = {(name_of(m), k) for m in MODELS for k in OPTIONS if config_or_none(m, OPTIONS[k])}
    for model in (zoo.gpt2, zoo.bert, zoo.deberta_v2, zoo.transformer, zoo.megatron, zoo.vit):
        assert {k for m, k in fits if m == name_of(model)} == set(OPTIONS)
    assert ("t5", "learned") not in fits  # it has no length
    assert len(fits) > 0.8 * len(MODELS) * len(OPTIONS)


options = st.fixed_dictionaries(
    {},
    optional={
        "graph": st.sampled_from(
            ["window(1)", "per_head(window(0), causal())", "random_edges(2, seed=1)", "@leq(J, I)"]
        ),
        "norm": st.sampled_from(block.NORMS),
        "scale": st.sampled_from(["sqrt", "none", 0.5]),
        "feed_forward": st.sampled_from([*block.FEED_FORWARDS, 2]),
        "aggregation": st.sampled_from(block.AGGREGATIONS),
        "positions": st.sampled_from(block.POSITIONS),
    },
)  # fmt: skip


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.sampled_from([zoo.gpt2, zoo.bert, zoo.transformer, zoo.t5, zoo.llama]), options)
def test_options_combine(model, chosen):
    config = config_or_none(model, chosen)
    if config is None:
        return
    fused = "random_edges" not in str(chosen.get("graph"))
    assert_equals_reference(model, config, fused=fused, gradients=True)


BAD = {
    "a graph of another kind": ({"graph": 3}, "is not a graph"),
    "a misspelt graph": ({"graph": "windw(3)"}, "windw"),
    "too many heads": ({"graph": "per_head(full(), full(), full())"}, "divided among 3"),
    "too many layers": ({"graph": per_layer(window(1), full())}, "in turns"),
    "samples": ({"graph": "per_sample(window(1))"}, "not a graph"),
    "a norm": ({"norm": "before"}, "pre, post, none"),
    "a number for a norm": ({"norm": 3}, "pre, post, none"),
    "a scale": ({"scale": "half"}, "sqrt, none or a number"),
    "no number": ({"scale": float("nan")}, "sqrt, none or a number"),
    "true": ({"scale": True}, "sqrt, none or a number"),
    "a feed-forward": ({"feed_forward": "swigloo"}, "did you mean `swiglu`"),
    "no size": ({"feed_forward": 0}, "is not a size"),
    "an aggregation": ({"aggregation": "median"}, "softmax, sum, mean, max"),
    "nothing to scale": ({"aggregation": "sum", "scale": 2.0}, "no scores"),
    "positions without scores": ({"aggregation": "max", "positions": "alibi"}, "learned"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_option_is_refused(case):
    chosen, said = BAD[case]
    with pytest.raises(EdgewiseError) as caught:
        small(zoo.gpt2, **chosen)
    assert said in str(caught.value)


def test_weights_have_the_same_names_whatever_the_graph():
    own = zoo.bert.program(small(zoo.bert, layers=2)).weights()
    for graph in (window(1), per_head(window(1), full()), per_layer(window(1), full())):
        other = zoo.bert.program(small(zoo.bert, layers=2, graph=graph)).weights()
        assert {n: w.shape for n, w in other.items()} == {n: w.shape for n, w in own.items()}


@pytest.mark.parametrize("aggregation", ["sum", "mean", "max"])
def test_padding_counts_for_nothing_without_scores(aggregation):
    config = small(zoo.bert, aggregation=aggregation, graph="window(1)")
    model = zoo.bert.program(config).compile(R.out, seed=0, dtype=torch.float64).eval()
    token, segment = torch.tensor([[1, 2, 3, 4, 5]]), torch.zeros(1, 5, dtype=torch.long)
    mask = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]).double()[None, :, None]
    padded = model(token=numbers(token), segment=numbers(segment), mask=mask)[:, :3]
    alone = model(token=numbers(token[:, :3]), segment=numbers(segment[:, :3]), mask=mask[:, :3])
    torch.testing.assert_close(padded, alone)


def test_aggregation_along_a_sparse_graph_takes_memory_for_its_pairs_only():
    n = 2000
    config = replace(
        zoo.encoder.Config(8, 2, 8, 1, dropout=0.0), graph="window(2)", aggregation="max"
    )
    model = zoo.encoder.program(config).compile(R.out, seed=0)
    steps = model.explain(x=torch.zeros(1, n, 8), stage="kernels").to_json()["kernels"]
    largest = max(s["largest"] for r in steps["relations"] for s in r["steps"])
    assert largest < 100 * n


@pytest.mark.parametrize("model", [zoo.llama, zoo.phi], ids=["llama", "phi"])
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"heads": 2, "groups": 8}, "`heads=2` is not a multiple of `groups=8`"),
        ({"heads": 2, "groups": 0}, "`groups=0` is not positive"),
        ({"heads": "2", "groups": 1}, "`heads='2'` is not positive"),
        ({"heads": 2, "groups": 2, "d": 5, "rotated": None}, "5 of `d=5` features"),
        ({"heads": 2, "groups": 2, "d": 4, "rotated": 8}, "8 of `d=4` features"),
    ],
    ids=str,
)
def test_heads_that_cannot_share_keys_or_be_rotated_are_refused(model, sizes, message):
    with pytest.raises(EdgewiseError, match=message) as caught:
        model.Config(size=8, layers=1, **sizes)
    assert caught.value.code == "bad-config"
