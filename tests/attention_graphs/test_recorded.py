"""The recomputed weights of every kind of model are those that it computes."""

import sys
from pathlib import Path

import pytest
import torch

from edgewise import F, Program, R, V, attention_graph, hf, numbers, ragged, rows, zoo
from edgewise.attention_graphs.errors import NoAttention
from edgewise.graphs import causal, full, global_tokens, per_head, per_sample, strided, window
from edgewise.scores import S, alibi

sys.path.insert(0, str(Path(__file__).parents[1] / "hf"))
import hf_models as models

SOFTMAX = [F.product, F.softmax_agg(agg_terms=[V.J])]
MAKERS = {
    "bert": models.bert, "gpt2": models.gpt2, "llama": models.llama, "mistral": models.mistral,
    "gemma2": models.gemma2, "gpt_oss": models.gpt_oss,
}  # fmt: skip


def stacked(graph):
    """(layers, heads, n, n)."""
    each = [[graph.weights(at, h) for h in range(heads)] for at, heads in enumerate(graph.heads)]
    return [torch.stack(layer) for layer in each]


def program(*condition):
    return Program(
        [
            (R.weights(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), *condition)) | SOFTMAX,
            (R.out(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )


def assert_like_the_reference(made, x, facts=(), **inputs):
    """Against `weights` of the reference evaluator."""
    model = made.compile(R.out, seed=0, dtype=torch.float64)
    (found,) = stacked(attention_graph(model, x=x, **inputs))
    solution = made.solve([*(R.x(i)[row] for i, row in enumerate(x)), *facts], seed=0)
    wanted = torch.zeros_like(found[0])
    for atom, value in solution[R.weights(V.I, V.J)].items():
        wanted[atom.terms] = value
    torch.testing.assert_close(found[0], wanted)


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize(
    "condition",
    [
        [],
        [R.special.leq(V.J, V.I)],
        [(window(1) | global_tokens(1))(V.I, V.J)],
        [strided(3)(V.I, V.J), R.special.leq(V.J, V.I)],
    ],
)
def test_a_compiled_program(condition, n):
    x = torch.randn(n, 3, generator=torch.manual_seed(n), dtype=torch.float64)
    assert_like_the_reference(program(*condition), x)


def test_a_program_along_edges():
    x = torch.randn(6, 3, generator=torch.manual_seed(0), dtype=torch.float64)
    pairs = [(i, j) for i in range(6) for j in (i // 2, (i * i) % 6)]
    edges = torch.tensor(sorted(set(pairs))).T
    facts = [R.edge(i, j) for i, j in edges.T.tolist()]
    assert_like_the_reference(program(R._edge(V.I, V.J)), x, facts, edge=edges)


def test_tokens_that_a_mask_sorts():
    """Tokens of one class attend to each other: the plan brings them together."""
    n = 32
    x = torch.randn(n, 3, generator=torch.manual_seed(0), dtype=torch.float64)
    of = torch.stack([torch.arange(n), torch.arange(n) % 4])
    facts = [R.of(i, c) for i, c in of.T.tolist()]
    made = program(R._of(V.I, V.C), R._of(V.J, V.C))
    assert_like_the_reference(made, x, facts, of=of)


def test_one_sample_of_a_ragged_batch():
    model = program().compile(R.out, dtype=torch.float64)
    batch = [torch.randn(n, 3, dtype=torch.float64) for n in (4, 2, 7)]
    for sample, x in enumerate(batch):
        (found,) = stacked(attention_graph(model, x=ragged(batch), sample=sample))
        torch.testing.assert_close(found[0], (x @ x.T).softmax(-1))


def test_additive_attention_of_gat():
    made = zoo.gat.program(zoo.gat.Config(3, 4, 2))
    model = made.compile(R.out, seed=0, dtype=torch.float64)
    listed = made.compile(R.alpha, seed=0, dtype=torch.float64)
    listed.load_state_dict(model.state_dict(), strict=False)
    edges = torch.tensor([[0, 0, 1, 2, 2, 3], [1, 2, 2, 0, 3, 3]])
    x = torch.randn(4, 3, generator=torch.manual_seed(0), dtype=torch.float64)
    (found,) = stacked(attention_graph(model, x=x, edge=edges))
    alpha = listed.rows(x=x, edge=edges)
    wanted = torch.zeros(2, 4, 4, dtype=torch.float64)
    wanted[tuple(alpha.index)] = alpha.data
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("graph", [None, "window(2) | global_tokens(1)", "heads"])
def test_hugging_face(make, graph):
    model = models.built(make)
    heads = per_head(window(1), window(3), full(), strided(2))
    used = heads if graph == "heads" else graph
    ids = torch.randint(29, (2, 9), generator=torch.manual_seed(0))
    before, config = model.config._attn_implementation, model.config
    if used is not None:
        hf.use(model, used)
        wanted = [a.to_dense() for a in model(ids, output_attentions=True).attentions]
    else:
        eager = models.built(make)
        eager.set_attn_implementation("eager")
        wanted = eager(ids, output_attentions=True).attentions
    found = stacked(attention_graph(model, input_ids=ids, sample=1))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs[1][..., : ours.shape[-1]])
    if used is None:  # left as it was
        assert model.config is config
        assert model.config._attn_implementation == before
        assert not any("_edgewise" in vars(module) for module in model.modules())


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_not_shown(side):
    model = models.built(models.bert)
    ids = torch.randint(1, 29, (1, 5), generator=torch.manual_seed(0))
    hf.use(model, window(1) | global_tokens(1))
    pad, one = torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 5, dtype=torch.long)
    both = torch.cat([pad, ids] if side == "left" else [ids, pad], 1)
    mask = torch.cat([pad, one] if side == "left" else [one, pad], 1)
    wanted = model(both, attention_mask=mask, output_attentions=True).attentions
    graph = attention_graph(model, input_ids=both, attention_mask=mask)
    here = mask[0].bool()
    for ours, theirs in zip(stacked(graph), wanted, strict=True):
        ours = torch.nn.functional.pad(ours, (0, 8 - len(ours[0]), 0, 8 - len(ours[0])))
        torch.testing.assert_close(ours[:, here], theirs.to_dense()[0][:, here])


def test_graphs_of_samples():
    model = hf.use(models.built(models.bert), per_sample(window(1), full()))
    ids = torch.randint(29, (2, 9), generator=torch.manual_seed(0))
    assert attention_graph(model, input_ids=ids, sample=0).calls[0].pairs() == 4 * 25
    assert attention_graph(model, input_ids=ids, sample=1).calls[0].pairs() == 4 * 81


def test_a_score_with_positions():
    from edgewise import attention
    from edgewise.attention_graphs.calls import AttentionCall

    q, k = torch.randn(2, 1, 2, 7, 4, generator=torch.manual_seed(0), dtype=torch.float64)
    score, graph = S + alibi(2), causal() & window(3)
    _, wanted = attention(q, k, k, graph, score=score, return_weights=True)
    call = AttentionCall("x", q[0], k[0], graph, 0.5, score=score.node, tables=score.tables)
    i, j = graph.edges(7)
    for head in range(2):
        part = call.take(head).block(0, 7)
        dense = torch.zeros(7, 7, dtype=torch.float64)
        dense.scatter_add_(1, part.keys, part.weights[0])
        torch.testing.assert_close(dense[i, j], wanted[0, head])


def test_models_that_are_not_attention():
    with pytest.raises(NoAttention):
        attention_graph(torch.nn.Linear(2, 2), input=torch.ones(1, 2))


def test_a_model_that_computes_attention_itself():
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    model = MPNetModel(MPNetConfig(**models.TEXT)).train()
    ids = torch.randint(2, 29, (1, 6))
    found = stacked(attention_graph(model, input_ids=ids))
    assert model.training
    wanted = model.eval()(ids, output_attentions=True).attentions
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.float(), theirs[0])


VISION = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2}


def test_positions_that_a_model_adds_to_its_mask():
    from transformers import BeitConfig, BeitModel

    torch.manual_seed(0)
    sizes = {**VISION, "intermediate_size": 24, "image_size": 12, "patch_size": 4}
    model = BeitModel(BeitConfig(**sizes, use_relative_position_bias=True)).double().eval()
    for name, table in model.named_parameters():
        if name.endswith("relative_position_bias_table"):
            torch.nn.init.normal_(table)
    image = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    found = stacked(attention_graph(model, pixel_values=image, sample=1))
    model.set_attn_implementation("eager")
    wanted = model(image, output_attentions=True).attentions
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs[1])


def test_windows_are_not_samples():
    from transformers import SwinConfig, SwinModel

    sizes = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "window_size": 4}
    model = SwinModel(SwinConfig(**sizes, depths=[1, 1], num_heads=[2, 4]))
    with pytest.raises(NoAttention, match="attends inside 8 windows of 2 samples"):
        attention_graph(model, pixel_values=torch.randn(2, 3, 16, 16))


def test_the_encoder_of_an_encoder_decoder():
    model = models.built(models.t5)
    model.set_attn_implementation("eager")
    ids = torch.randint(1, 29, (1, 6))
    wanted = model.get_encoder()(ids, output_attentions=True).attentions
    for ours, theirs in zip(stacked(attention_graph(model, input_ids=ids)), wanted, strict=True):
        torch.testing.assert_close(ours, theirs[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2"])
def test_compiled_models_of_the_zoo(name, tmp_path):
    """Ours with the weights of a model of theirs attends as theirs does."""
    theirs = models.built(MAKERS[name])
    theirs.set_attn_implementation("eager")
    theirs.save_pretrained(tmp_path)
    ours = zoo.from_pretrained(tmp_path, dtype=torch.float64)
    ids = torch.randint(29, (1, 9), generator=torch.manual_seed(0))
    known = {"token": numbers(ids), "mask": torch.ones(1, 9, 1, dtype=torch.float64),
             "segment": numbers(torch.zeros_like(ids))}  # fmt: skip
    graph = attention_graph(ours, **{name: known[name] for name in ours.model.inputs})
    wanted = theirs(ids, output_attentions=True).attentions
    for layer, weights in zip(stacked(graph), wanted, strict=True):
        torch.testing.assert_close(layer, weights[0], atol=1e-6, rtol=1e-5)


def test_a_relation_for_the_next_program():
    x = torch.randn(6, 3, generator=torch.manual_seed(0))
    strong = attention_graph(program().compile(R.out), x=x).edges(top=2)
    near = Program([(R.y(V.I) <= (R.edge(V.I, V.J), R.x(V.J))) | [F.product]]).compile(R.y)
    relation = strong.relation()
    assert isinstance(relation, rows)
    dense = torch.zeros(6, 6)
    dense[relation.keys[0], relation.keys[1]] = relation.values
    torch.testing.assert_close(near(x=x, edge=relation).data, dense @ x)
