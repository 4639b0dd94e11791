"""Any graph as the attention of Hugging Face models: equal to a boolean mask, and undone."""

import copy

import hf_models as models
import pytest
import torch

from edgewise import EdgewiseError, hf
from edgewise.graphs import (
    causal,
    documents,
    full,
    global_tokens,
    parse,
    per_head,
    per_layer,
    per_sample,
    strided,
    window,
)

GRAPHS = {
    "window": window(2),
    "global": window(1) | global_tokens(1),
    "strided": strided(3),
    "per head": per_head(window(1), window(3), full(), strided(2)),
}
LAYERS = per_layer(window(1), per_head(window(2), causal(), full(), global_tokens(2)))
ENCODERS = {"bert": models.bert, "roberta": models.roberta}
DECODERS = {"gpt2": models.gpt2, "llama": models.llama, "mistral": models.mistral}
TEXTS = ENCODERS | DECODERS


def tokens(batch=2, n=9):
    return torch.randint(3, 29, (batch, n), generator=torch.Generator().manual_seed(1))


def hidden(model, ids, mask=None, **more):
    out = model(ids, attention_mask=mask, **more)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def assert_same(model, graph, run, real=None):
    """The switched model gives what plain torch gives with the same pairs, and its gradients."""
    other = copy.deepcopy(model)
    layers = list(graph) if isinstance(graph, per_layer) else graph
    other.set_attn_implementation(models.register_reference(layers))
    hf.use(model, graph)
    ours, theirs = run(model), run(other)
    if real is not None:
        ours, theirs = ours[real], theirs[real]
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-8)
    weight = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(2))
    mine = models.gradients(model, (ours * weight).sum())
    yours = models.gradients(other, (theirs * weight).sum())
    assert mine.keys() == yours.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], yours[name], atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("graph", [*GRAPHS.values(), LAYERS], ids=[*GRAPHS, "per layer"])
@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_values_and_gradients_are_those_of_a_mask(make, graph):
    assert_same(models.built(make), graph, lambda model: hidden(model, tokens()))


@pytest.mark.parametrize("n", [1, 2, 17])
@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_any_length(make, n):
    assert_same(models.built(make), GRAPHS["global"], lambda model: hidden(model, tokens(3, n)))


@pytest.mark.parametrize("graph", [*GRAPHS.values(), LAYERS], ids=[*GRAPHS, "per layer"])
@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_padding_on_the_right(make, graph):
    real = torch.arange(9) < torch.tensor([[9], [5], [1]])
    ids = tokens(3).masked_fill(~real, 1)
    assert_same(models.built(make), graph, lambda m: hidden(m, ids, real.long()), real)


SAMPLES = per_sample(window(1), GRAPHS["per head"], window(1) | global_tokens(1), window(1))


@pytest.mark.parametrize("layered", [False, True], ids=["all layers", "per layer"])
@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_graphs_of_samples(make, layered):
    """With padding on the right, and their gradients."""
    real = torch.arange(9) < torch.tensor([[9], [5], [9], [1]])
    ids = tokens(4).masked_fill(~real, 1)
    model = models.built(make)
    other = copy.deepcopy(model)
    by = models.BySample(SAMPLES)
    other.set_attn_implementation(
        models.register_reference((by, strided(2)) if layered else Of(by))
    )
    hf.use(model, per_layer(SAMPLES, strided(2)) if layered else SAMPLES)
    ours, theirs = (hidden(m, ids, real.long())[real] for m in (model, other))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-8)
    mine, yours = (
        models.gradients(m, x.square().sum()) for m, x in ((model, ours), (other, theirs))
    )
    for name in mine:
        torch.testing.assert_close(mine[name], yours[name], atol=1e-9, rtol=1e-6)


class Of:
    """One graph for all layers, whatever it is."""

    def __init__(self, graph):
        self.dense = graph.dense


def test_graphs_of_samples_are_as_many_as_samples():
    model = hf.use(models.built(models.bert), SAMPLES)
    with pytest.raises(EdgewiseError, match="patterns for 4 samples"):
        hidden(model, tokens(3))
    with pytest.raises(EdgewiseError, match="heads"):
        hf.use(models.built(models.bert), per_sample(per_head(window(1), window(2))))


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_padding_on_the_left_counts_as_nothing(make):
    """Each row attends as it would alone, whatever the graph says about positions."""
    model = hf.use(models.built(make), window(1) | global_tokens(1) | strided(4))
    real = torch.arange(9) >= torch.tensor([[0], [3], [8]])
    ids = tokens(3)
    places = (real.long().cumsum(1) - 1).clamp_min(0)
    if make is models.roberta:
        places = places + 2
    out = hidden(model, ids, real.long(), position_ids=places)
    for row, first in enumerate((0, 3, 8)):
        alone = hidden(model, ids[row : row + 1, first:])
        torch.testing.assert_close(out[row, first:], alone[0], atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_padding_between_tokens(make):
    real = torch.tensor([[1, 1, 0, 1, 1, 1, 0, 0, 1], [1, 0, 0, 0, 1, 1, 1, 1, 0]]).bool()
    assert_same(models.built(make), window(2), lambda m: hidden(m, tokens(), real.long()), real)


def test_a_row_of_padding_alone_leaves_the_others_as_they_are():
    model = hf.use(models.built(models.bert), window(2))
    real = torch.tensor([[1] * 9, [0] * 9]).bool()
    out = hidden(model, tokens(), real.long())
    assert out.isfinite().all()
    torch.testing.assert_close(out[0], hidden(model, tokens()[:1])[0])


@pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS)
def test_packed_texts_attend_to_themselves(make):
    model = hf.use(models.built(make), window(2) | global_tokens(1))
    ids = tokens(1, 9)
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]])
    out = hidden(model, ids, position_ids=places, use_cache=False)
    for first, stop in ((0, 4), (4, 6), (6, 9)):
        torch.testing.assert_close(out[:, first:stop], hidden(model, ids[:, first:stop]))


@pytest.mark.parametrize("graph", [window(2), window(1) | global_tokens(1), LAYERS], ids=str)
@pytest.mark.parametrize("make", [models.gpt2, models.llama], ids=["gpt2", "llama"])
def test_generation_with_a_cache_is_generation_without(make, graph):
    model = hf.use(models.built(make), graph)
    how = {"max_new_tokens": 12, "do_sample": False}
    with_cache = model.generate(tokens(2, 5), use_cache=True, **how)
    assert torch.equal(with_cache, model.generate(tokens(2, 5), use_cache=False, **how))
    plain = copy.deepcopy(model)
    hf.restore(plain)
    plain.set_attn_implementation(
        models.register_reference(list(graph) if isinstance(graph, per_layer) else graph)
    )
    assert torch.equal(with_cache, plain.generate(tokens(2, 5), use_cache=False, **how))


@pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS)
def test_generation_of_a_padded_batch_is_that_of_each_alone(make):
    model = hf.use(models.built(make), window(2) | global_tokens(1))
    real = torch.arange(6) >= torch.tensor([[0], [4]])
    ids = tokens(2, 6).masked_fill(~real, 0)
    how = {"max_new_tokens": 9, "do_sample": False}
    both = model.generate(ids, attention_mask=real.long(), **how)
    for row, first in enumerate((0, 4)):
        alone = model.generate(ids[row : row + 1, first:], **how)
        assert torch.equal(both[row : row + 1, first:], alone)


def test_a_cache_of_fixed_size():
    model = hf.use(models.built(models.llama), window(2) | global_tokens(1))
    how = {"max_new_tokens": 6, "do_sample": False}
    grown = model.generate(tokens(2, 5), **how)
    fixed = model.generate(tokens(2, 5), cache_implementation="static", disable_compile=True, **how)
    assert torch.equal(grown, fixed)


def test_beams():
    model = hf.use(models.built(models.gpt2), window(2))
    how = {"max_new_tokens": 6, "do_sample": False, "num_beams": 3}
    found = model.generate(tokens(2, 5), use_cache=True, **how)
    assert torch.equal(found, model.generate(tokens(2, 5), use_cache=False, **how))


def test_images():
    x = torch.randn(2, 1, 12, 12, generator=torch.Generator().manual_seed(0)).double()
    assert_same(models.built(models.vit), window(2), lambda m: m(x).last_hidden_state)


@pytest.mark.parametrize("side", ["right", "left"])
def test_an_encoder_and_a_decoder(side):
    """Both attend along the graph, with T5's own bias; cross-attention stays dense."""
    real = torch.arange(9) < torch.tensor([[9], [5]])
    real = real if side == "right" else real.flip(1)
    ids, answers = tokens(), tokens(2, 7)

    def run(model):
        return model(ids, attention_mask=real.long(), decoder_input_ids=answers).logits

    model = models.built(models.t5)
    other = copy.deepcopy(model)
    other.set_attn_implementation(models.register_reference(full()))
    hf.use(model, full())
    torch.testing.assert_close(run(model), run(other))
    hf.use(model, window(1))
    assert not torch.allclose(run(model), run(other))
    how = {"max_new_tokens": 6, "do_sample": False, "attention_mask": real.long()}
    found = model.generate(ids, use_cache=True, **how)
    assert torch.equal(found, model.generate(ids, use_cache=False, **how))


@pytest.mark.parametrize("make", [models.bert, models.llama], ids=["bert", "llama"])
def test_gradient_checkpointing(make):
    model = hf.use(models.built(make), GRAPHS["global"]).train()
    wanted = models.gradients(model, hidden(model, tokens()).square().sum())
    models.checkpoint_activations(model)
    found = models.gradients(model, hidden(model, tokens()).square().sum())
    assert found.keys() == wanted.keys()
    for name in found:
        torch.testing.assert_close(found[name], wanted[name])


def test_a_mask_of_the_users_own():
    model, graph = models.built(models.bert), window(2)
    own = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(0)) > 0.3
    own = own | torch.eye(9, dtype=torch.bool)
    wanted = copy.deepcopy(model)
    wanted.set_attn_implementation("sdpa")
    out = hidden(hf.use(model, graph), tokens(), own)
    torch.testing.assert_close(out, hidden(wanted, tokens(), own & graph.dense(9)))


def test_dropout_is_applied_in_training_only():
    from transformers import BertConfig, BertModel

    config = {**models.TEXT, **models.QUIET, "attention_probs_dropout_prob": 0.5}
    torch.manual_seed(0)
    model = hf.use(BertModel(BertConfig(**config)), window(2))
    assert not torch.equal(hidden(model.train(), tokens()), hidden(model, tokens()))
    assert torch.equal(hidden(model.eval(), tokens()), hidden(model, tokens()))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo's, where a graph is cut
@pytest.mark.parametrize("make", [models.bert, models.llama], ids=["bert", "llama"])
def test_a_compiled_model(make):
    model = hf.use(models.built(make), GRAPHS["global"])
    real = torch.arange(9) < torch.tensor([[9], [5]])
    fast = torch.compile(model, backend="eager")
    ours, compiled = (hidden(m, tokens(), real.long()) for m in (model, fast))
    torch.testing.assert_close(compiled, ours)
    wanted = models.gradients(model, ours.square().sum())
    found = models.gradients(model, compiled.square().sum())
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name])


def test_half_precision():
    model = hf.use(models.built(models.llama, torch.bfloat16), window(2))
    out = hidden(model, tokens(), torch.ones(2, 9).long())
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_restored_it_is_as_before(make):
    model = models.built(make)
    names = list(model.state_dict())
    wanted = hidden(model, tokens())
    before = model.config._attn_implementation
    hf.use(hf.use(model, window(1)), window(2))
    assert not torch.allclose(hidden(model, tokens()), wanted)
    assert list(model.state_dict()) == names
    assert hf.restore(model).config._attn_implementation == before
    assert torch.equal(hidden(model, tokens()), wanted)


def test_a_copy_is_switched_too():
    model = hf.use(models.built(models.bert), window(1))
    assert torch.equal(hidden(copy.deepcopy(model), tokens()), hidden(model, tokens()))


@pytest.mark.parametrize("make", [models.bert, models.llama, models.t5])
def test_models_of_one_config_are_independent(make):
    def run(model):
        extra = {"decoder_input_ids": tokens()} if make is models.t5 else {}
        return hidden(model, tokens(), **extra)

    a = models.built(make)
    config = a.config
    b, name = type(a)(config).double().eval(), config._attn_implementation
    b.load_state_dict(a.state_dict())
    plain = run(b)
    hf.use(a, window(1))
    assert config._attn_implementation == b.config._attn_implementation == name
    assert torch.equal(run(b), plain)
    along = run(a)
    hf.use(b, window(2))
    assert torch.equal(run(a), along)
    further = run(b)
    assert not torch.allclose(further, along)
    assert torch.equal(run(hf.restore(a)), plain)
    assert torch.equal(run(b), further)
    assert torch.equal(run(hf.restore(b)), plain)
    assert a.config._attn_implementation == b.config._attn_implementation == name


def test_a_longer_model_leaves_another_of_its_config():
    a = models.built(models.llama)
    b = type(a)(a.config).double().eval()
    before = b.config.to_dict()
    hf.longer(a, 256, window(2))
    assert b.config.to_dict() == before
    assert a.config.max_position_embeddings == a.model.config.max_position_embeddings == 256


def test_a_part_that_was_switched_alone_is_restored_with_the_whole():
    model = models.built(models.llama)
    plain = hidden(model, tokens())
    hf.use(model.model, window(1))
    along = hidden(model, tokens())
    assert not torch.allclose(along, plain)
    assert torch.equal(hidden(hf.use(model, window(1)), tokens()), along)
    assert torch.equal(hidden(hf.restore(model), tokens()), plain)


def longformer():
    from transformers import LongformerConfig, LongformerModel

    return LongformerModel(LongformerConfig(**models.TEXT, attention_window=4))


BAD = {
    "flash": (
        models.bert,
        window(1),
        {"cu_seq_lens_q": torch.tensor([0, 9])},
        "unsupported-argument",
        "`cu_seq_lens_q`",
    ),
    "a relation without a program": (
        models.bert,
        window(1),
        {"arc": torch.zeros(2, 2, 1).long()},
        "unsupported-argument",
        "`arc`",
    ),
    "no such part": (models.bert, {"decoder": window(1)}, {}, "unknown-part", "`encoder`"),
    "no part": (models.bert, {}, {}, "unknown-part", "no part"),
    "a mask of another batch": (
        models.llama,
        window(1),
        {"mask": torch.ones(3, 9)},
        "unknown-mask",
        "3 rows, the batch 2",
    ),
    "a part twice": (
        models.bert,
        {"encoder": window(1), "encoder.layer.0": window(2)},
        {},
        "unknown-part",
        "inside another",
    ),
    "its own attention": (longformer, window(1), {}, "not-pluggable", "LongformerModel"),
    "no graph": (models.bert, 3, {}, "not-an-attention", "got int"),
    "layers": (
        models.bert,
        per_layer(window(1)),
        {},
        "layer-mismatch",
        "1 layers, the model has 2",
    ),
    "heads": (models.bert, per_head(window(1)), {}, "layer-mismatch", "has 4 heads"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_done_says_so(case):
    make, graph, more, code, text = BAD[case]
    model = models.built(make)
    before = model.config._attn_implementation
    with pytest.raises(EdgewiseError) as caught:
        hidden(hf.use(model, graph), tokens(), **more)
    assert caught.value.code == code
    assert text in str(caught.value)
    if code not in ("unsupported-argument", "unknown-mask"):
        assert model.config._attn_implementation == before


@pytest.mark.parametrize("graph", ["bigbird(4, seed=0)", "random_edges(2, seed=0)", "ring(2)"])
def test_a_graph_that_grows_is_no_cache(graph):
    model = hf.use(models.built(models.llama), parse(graph))
    hidden(model, tokens())
    with pytest.raises(EdgewiseError) as caught:
        model.generate(tokens(1, 8), max_new_tokens=3, do_sample=False)
    assert caught.value.code == "not-a-prefix"


@pytest.mark.parametrize("graph", ["random_edges(2, seed=0)", "ring(2)", "bigbird(2, seed=0)"])
@pytest.mark.parametrize("left", [False, True])
def test_a_graph_of_the_length_is_that_of_each_text(graph, left):
    model = hf.use(models.built(models.bert), parse(graph))
    lengths = torch.tensor([[9], [5], [1]])
    real = torch.arange(9) >= 9 - lengths if left else torch.arange(9) < lengths
    ids = tokens(3, 9)
    places = (real.cumsum(1) - 1).clamp_min(0)
    out = hidden(model, ids, real.long(), position_ids=places)
    for row, one in enumerate(real):
        alone = hidden(model, ids[row : row + 1, one])
        torch.testing.assert_close(out[row : row + 1, one], alone)


def test_a_graph_of_one_length_is_cut():
    model = hf.use(models.built(models.bert), documents([4, 5]))
    real = torch.arange(9) < torch.tensor([[9], [3]])
    out = hidden(model, tokens(), real.long())
    hf.use(model, full())
    torch.testing.assert_close(out[1, :3], hidden(model, tokens()[1:, :3])[0])


def test_a_graph_as_text():
    model = hf.use(models.built(models.bert), "window(1) | global_tokens(1)")
    assert hf.graph_of(model) == window(1) | global_tokens(1)
    hf.use(model, {"encoder.layer.0": "per_head(window(1), window(2), full(), causal())"})
    assert hf.graph_of(model)["encoder.layer.0"][3] == causal()
    with pytest.raises(EdgewiseError, match="windows"):
        hf.use(model, "windows(1)")


def test_no_model():
    with pytest.raises(EdgewiseError, match="expected a model"):
        hf.use(None, window(2))
