"""What every model of the zoo is: few rules, a paper, a program that prints and trains."""

import re
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from itertools import product

import pytest
import torch

from edgewise import C, EdgewiseError, F, Program, R, V, W, load, numbers, repeat, zoo
from edgewise import graphs as patterns
from edgewise.language.nodes import Atom, Line, Rule, Stack
from edgewise.language.statements import atoms

NAMES = patterns.PATTERNS | {
    "C": C,
    "F": F,
    "Program": Program,
    "R": R,
    "V": V,
    "W": W,
    "repeat": repeat,
}
SIZES = {
    zoo.encoder: {"size": 8, "heads": 2, "hidden": 8, "layers": 2},
    zoo.gat: {"inputs": 8, "outputs": 2, "heads": 2},
    zoo.gatv2: {"inputs": 8, "outputs": 2, "heads": 2},
    zoo.gin: {"inputs": 8, "hidden": 8, "outputs": 8},
    zoo.rgcn: {"inputs": 8, "outputs": 8, "types": ("a", "b")},
    zoo.mixing: {"size": 8, "hidden": 8, "layers": 2, "dropout": 0.0},
    zoo.convolution: {"size": 8, "heads": 2, "taps": 3, "hidden": 8, "layers": 1, "dropout": 0.0},
    zoo.convs2s: {"size": 8, "layers": 2, "dropout": 0.0},
    zoo.rnn: {"source_words": 6, "target_words": 6, "size": 4, "dropout": 0.0},
    zoo.vit: {"image": 2, "patch": 1, "size": 4, "heads": 2, "hidden": 4, "layers": 1},
    zoo.llama: {"groups": 1, "d": 2},
    zoo.phi: {"groups": 1, "d": 4, "rotated": 2},
    zoo.bigbird: {"block": 1, "random": 1},
    zoo.deberta: {"reach": 3},
    zoo.deberta_v2: {"reach": 6, "buckets": 4},
    zoo.sparse: {"step": 2},
    zoo.transformer_xl: {"memory": 2},
    zoo.compressive: {"memory": 2, "compressed": 2, "rate": 2, "loss": True},
    zoo.reformer: {"directions": 1, "rounds": 2},
    zoo.adaptive_span: {"span": 2, "ramp": 2},
    zoo.bp_transformer: {"k": 1, "clip": 1},
    zoo.t5: {"d": 2, "decoder_layers": 1, "buckets": 4},
    zoo.transformer: {"decoder_layers": 1},
    zoo.bart: {"decoder_layers": 1},
    zoo.whisper: {"decoder_layers": 1, "mels": 2, "frames": 2},
}
TEXT = {"vocabulary": 6, "size": 4, "heads": 2, "hidden": 4, "layers": 2, "dropout": 0.0}
WITH_MEMORY = {zoo.transformer_xl: [R.memory], zoo.compressive: [R.memory, R.compressed]}
OTHERS = (*zoo.GRAPH_NETWORKS, *zoo.RELATIONAL, zoo.clip)  # their inputs differ: own test files
ALIKE = [m for m in zoo.MODELS if m not in OTHERS]
every_model = pytest.mark.parametrize("model", ALIKE, ids=lambda m: m.__name__.rpartition(".")[2])


def small(model):
    of_text = model in zoo.TRANSFORMERS and model is not zoo.vit
    plain = TEXT if of_text else {} if model in SIZES else {"inputs": 8, "outputs": 8}
    return model.program(replace(model.Config(), **plain, **SIZES.get(model, {})))


def output(model):
    head = {rule.head.relation: rule.head for rule in small(model).rules}
    return head["logits"] if "logits" in head and model is not zoo.bert else head["out"]


def facts(model, n: int = 4):
    if model in (*zoo.TRANSFORMERS, zoo.rnn):
        return text_facts(model, n)
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = [R.x(i)[row] for i, row in enumerate(x)]
    if model in (zoo.encoder, *zoo.WITHOUT_ATTENTION):
        return rows
    pairs = [(0, 1), (1, 0), (2, 2), (3, 0)]
    if model is zoo.rgcn:
        return rows + [R.edge(i, "ab"[j % 2], j) for i, j in pairs]
    return rows + [R.edge(i, j) for i, j in pairs]


def text_facts(model, n: int):
    if model is zoo.vit:
        pixels = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0))
        return [R.pixel(*k)[pixels[k]] for k in product(range(3), range(2), range(2))]
    names = {"token": 6, "source": 6, "target": 6, "segment": 1, "mask": 0, "end": 0}
    read = {
        a.relation for rule in small(model).rules for a in atoms(rule.body) if isinstance(a, Atom)
    }
    if model is zoo.bp_transformer:
        edges = model.Config(k=1, clip=1).edges(n).keys.T.tolist()
        return [R.token(i)[float(i)] for i in range(n)] + [R.edge(*one) for one in edges]
    sound = [R.feature(t)[[0.5 * t, 1.0]] for t in range(n)] if model is zoo.whisper else []
    past = product(WITH_MEMORY.get(model, []), range(2), range(2))
    return [*sound, *(memory(k, j)[[1.0, 0.0, -1.0, 0.5 * j]] for memory, k, j in past)] + [
        R[name](i)[float((i + 1) % count) if count else 1.0]
        for name, count in names.items()
        if name in read
        for i in range(n)
    ]


def printed_rules(statements) -> int:
    """The rules a reader sees: a stack's once."""
    inside = [s.statements for s in statements if isinstance(s, Stack)]
    here = sum(isinstance(s, Rule | Line) for s in statements)
    return here + sum(map(printed_rules, inside))


def test_every_module_with_rules_and_a_config_is_listed():
    modules = [getattr(zoo, name) for name in zoo.__all__]
    found = [m for m in modules if hasattr(m, "Config") and hasattr(m, "program")]
    assert sorted(m.__name__ for m in found) == sorted(m.__name__ for m in zoo.MODELS)


@pytest.mark.parametrize("model", OTHERS, ids=lambda m: m.__name__.rpartition(".")[2])
def test_other_models_have_a_paper_a_parity_and_a_printed_form(model):
    assert "https://arxiv.org/abs/" in model.__doc__
    assert "Parity: " in " ".join(model.__doc__.split())
    program = model.program(model.Config())
    assert eval(repr(program), dict(NAMES)) == program


@every_model
def test_is_a_page_with_a_paper_a_config_and_few_rules(model):
    assert "https://arxiv.org/abs/" in model.__doc__
    assert re.search(r"Parity: `(torch|transformers)", model.__doc__)
    assert is_dataclass(model.Config)
    assert model.Config() == model.Config()
    assert hash(model.Config()) == hash(model.Config())
    limit = 10 if model in zoo.GRAPHS else 45
    config = model.Config()
    if model is zoo.albert:  # layers that share weights are written out
        config = replace(config, layers=1)
    if model is zoo.sparse:  # two kinds of layers
        config = replace(config, layers=2)
    assert printed_rules(model.program(config).statements) <= limit


@every_model
def test_prints_as_code_and_as_text_that_build_it(model):
    program = model.program(model.Config())
    assert eval(repr(program), dict(NAMES)) == program
    assert Program.parse(program.text()) == program


def rows_of(compiled, given):
    """Atom → value: the same for every kind of output."""
    return dict(compiled.rows(compiled.ground(facts=given)))


@every_model
def test_saved_and_loaded_it_is_the_same(model, tmp_path):
    compiled = small(model).compile(R[output(model).relation], seed=0, fill=0.0).eval()
    assert_saved_is_the_same(compiled, facts(model), tmp_path / "model")


VARIANTS = {
    "MPNet": (zoo.bert, {"buckets": 8, "types": 0}, R.out),
    "relative": (zoo.transformer, {"decoder_layers": 1, "positions": "relative"}, R.logits),
    "alibi": (zoo.transformer, {"decoder_layers": 1, "positions": "alibi"}, R.logits),
    "rotary": (zoo.transformer, {"decoder_layers": 1, "positions": "rotary"}, R.logits),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_so_is_a_variant_and_its_text_builds_it(name, tmp_path):
    model, sizes, out = VARIANTS[name]
    program = model.program(replace(model.Config(), **TEXT | sizes))
    assert eval(repr(program), dict(NAMES)) == program
    assert Program.parse(program.text()) == program
    compiled = program.compile(out, seed=0, fill=0.0).eval()
    given = [f for f in facts(model) if f.relation in compiled.inputs]
    assert_saved_is_the_same(compiled, given, tmp_path / "model")


def assert_saved_is_the_same(compiled, given, path):
    compiled.save(path)
    loaded = load(path).eval()
    assert loaded.program == compiled.program
    before, after = rows_of(compiled, given), rows_of(loaded, given)
    assert list(before) == list(after)
    assert before
    for atom, value in before.items():
        torch.testing.assert_close(after[atom], value, rtol=0, atol=0)


@every_model
def test_a_step_along_the_gradient_lowers_the_loss(model):
    program = small(model)
    weights = program.weights(seed=0)

    def loss(current):
        found = program.solve(facts(model), weights=current, seed=0)[output(model)]
        values = [*found.values()] if isinstance(found, Mapping) else [found]
        return torch.stack(values).sub(0.5).square().mean()

    before = loss(weights)
    gradients = torch.autograd.grad(before, list(weights.values()), materialize_grads=True)
    step = {k: w - 0.01 * g for (k, w), g in zip(weights.items(), gradients, strict=True)}
    assert loss(step) < before


@every_model
def test_has_nothing_to_warn_about(model):
    assert small(model).check(facts(model)) == []


BATCHED = (
    *(zoo.transformer, zoo.bert, zoo.gpt2, zoo.llama, zoo.t5, zoo.vit, zoo.longformer),
    *(zoo.mixing, zoo.convolution, zoo.reformer),
)


@pytest.mark.parametrize("model", BATCHED, ids=lambda m: m.__name__.rpartition(".")[2])
def test_a_batch_may_be_empty(model):
    compiled = small(model).compile(R[output(model).relation], seed=0)
    shapes = {"mask": (0, 4, 1), "x": (0, 4, 8), "pixel": (0, 3, 2, 2, 1)}
    none = torch.zeros(0, 4, dtype=torch.int64)
    inputs = {n: torch.zeros(shapes[n]) if n in shapes else numbers(none) for n in compiled.inputs}
    assert compiled(**inputs).shape[0] == 0


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (zoo.transformer_xl, {"memory": -1}),
        (zoo.compressive, {"memory": 0.5}),
        (zoo.compressive, {"compressed": -1}),
        (zoo.compressive, {"rate": 0}),
        (zoo.adaptive_span, {"span": 0}),
        (zoo.adaptive_span, {"ramp": 0}),
        (zoo.reformer, {"directions": 0}),
        (zoo.reformer, {"rounds": -1}),
        (zoo.bp_transformer, {"k": 0}),
        (zoo.bp_transformer, {"clip": True}),
        (zoo.t5, {"buckets": 3}),
        (zoo.t5, {"far": 16}),  # distances up to there have a bucket each
    ],
)
def test_a_size_that_means_nothing_is_refused(model, sizes):
    with pytest.raises(EdgewiseError, match=next(iter(sizes))) as caught:
        model.Config(**sizes)
    assert caught.value.code == "bad-size"


DIVIDED = [m for m in ALIKE if {"size", "heads"} <= set(m.Config.__dataclass_fields__)]
APART = (zoo.llama, zoo.phi, zoo.t5)  # heads have a size of their own


@pytest.mark.parametrize(
    "model", [m for m in DIVIDED if m not in APART], ids=lambda m: m.__name__.rpartition(".")[2]
)
def test_heads_share_out_the_numbers_of_a_row(model):
    for heads, said in (
        (3, "size 8 is not divisible by 3 heads"),
        (0, "`heads` must be"),
    ):
        with pytest.raises(EdgewiseError, match=said) as caught:
            model.program(replace(model.Config(), size=8, heads=heads))
        assert caught.value.code == "bad-size"
