"""Padding is a condition: rows that are not there are neither queries nor keys."""

import pytest
import torch

from edgewise import R, V, hf, numbers, ragged, zoo
from edgewise.graphs import full
from edgewise.hf import graph_attention
from edgewise.kernels.attention.present_rows import is_relative, runs_of
from edgewise.language import F, Program
from edgewise.physical import prepare

TEXT = {"vocabulary": 30, "size": 16, "heads": 2, "hidden": 8, "layers": 2, "dropout": 0.0}
READ = {  # what an encoder reads, or an encoder–decoder
    zoo.bert: ("token", "segment", "mask"),
    zoo.megatron: ("token", "segment", "mask"),
    zoo.deberta: ("token", "mask"),
    zoo.xlnet: ("token", "segment", "mask"),
    zoo.transformer: ("source", "target", "mask"),
    zoo.t5: ("source", "target", "mask"),
    zoo.bart: ("source", "target", "mask"),
}


def compiled(model, relation, **options):
    both = {"decoder_layers": 1} if "decoder_layers" in model.Config.__dataclass_fields__ else {}
    long = {"length": 300} if "length" in model.Config.__dataclass_fields__ else {}
    own = {"d": 8} if model is zoo.t5 else {}
    config = model.Config(**TEXT | both | long | own | options)
    return model.program(config).compile(R[relation], seed=0, dtype=torch.float64).eval()


def inputs(model, token, mask):
    target = token[:, :5]
    known = {
        "token": numbers(token), "source": numbers(token), "target": numbers(target),
        "segment": numbers(torch.zeros_like(token)), "mask": mask.double().unsqueeze(-1),
    }  # fmt: skip
    return {name: known[name] for name in READ[model]}


def of_lengths(n, *lengths, left=False):
    place = torch.arange(n)
    place = place.flip(0) if left else place
    return place < torch.tensor(lengths)[:, None]


def pairs(model, **read):
    found = model.explain(json=True, stage="kernels", **read)["kernels"]
    return [s["pairs"] for r in found["relations"] for s in r["steps"] if "pairs" in s]


@pytest.mark.parametrize("model", READ, ids=lambda m: m.__name__.rpartition(".")[2])
def test_padding_changes_nothing(model):
    """Rows, gradients: those of each text alone."""
    encodes = "token" in READ[model]
    program = compiled(model, "out" if encodes else "logits")
    generator = torch.Generator().manual_seed(1)
    token, lengths = torch.randint(3, 30, (3, 70), generator=generator), (70, 3, 20)
    mask = of_lengths(70, *lengths)
    weights = [w for w in program.parameters() if w.requires_grad]
    found = program(**inputs(model, token, mask))
    alone = []
    for k, n in enumerate(lengths):
        rows = token[k : k + 1, : max(n, 5)]
        read = inputs(model, rows, mask[k : k + 1, : max(n, 5)])
        if not encodes:
            read |= {"target": numbers(token[k : k + 1, :5])}
        alone.append(program(**read)[0, : n if encodes else 5])
    ours = [found[k, : n if encodes else 5] for k, n in enumerate(lengths)]
    torch.testing.assert_close(ours, alone, atol=1e-10, rtol=1e-10)
    first, second = (
        torch.autograd.grad(sum(x.square().sum() for x in rows), weights, allow_unused=True)
        for rows in (ours, alone)
    )
    for one, other in zip(first, second, strict=True):
        if one is not None or other is not None:
            torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def test_only_real_pairs_are_computed():
    program = compiled(zoo.bert, "out")
    token = torch.zeros(2, 256).long()
    read = inputs(zoo.bert, token, of_lengths(256, 256, 8))
    assert pairs(program, **read) == [131_200, 131_200]
    assert pairs(program, **inputs(zoo.bert, token, of_lengths(256, 256, 256))) == [262_144] * 2
    local = compiled(zoo.bert, "out", graph="window(3)")
    along = 2 * sum(min(n, i + 4) - max(0, i - 3) for n in (256, 8) for i in range(n))
    assert pairs(local, **read) == [along] * 2


@pytest.mark.parametrize("options", [{}, {"graph": "window(2)"}, {"positions": "alibi"},
                                   {"positions": "relative"}, {"graph": "strided(3)"}])  # fmt: skip
def test_masks_of_every_kind(options):
    """Padding on the left, on both sides, between tokens, everywhere: as the rules say it."""
    model = compiled(zoo.bert, "out", **options)
    listed = zoo.bert.program(zoo.bert.Config(**TEXT | {"length": 300} | options)).compile(
        R.out, seed=0, dtype=torch.float64, without=["fuse attention"]
    ).eval()  # fmt: skip
    mask = of_lengths(60, 60, 0, 1, 7, left=True)
    mask = torch.cat(
        [mask, torch.arange(60)[None] % 7 > 2, (torch.arange(60)[None] - 30).abs() < 9]
    )
    token = torch.arange(360).reshape(6, 60) % 27 + 3
    read = inputs(zoo.bert, token, mask)
    torch.testing.assert_close(model(**read), listed(**read), atol=1e-10, rtol=1e-10)


def test_a_soft_mask_is_a_weight():
    """Weights that are the same for all keys change nothing; a key of small weight nearly none."""
    model = compiled(zoo.bert, "out")
    token = torch.arange(6)[None] + 3
    read = inputs(zoo.bert, token, torch.ones(1, 6))
    half = model(**read | {"mask": torch.full((1, 6, 1), 0.5).double()})
    torch.testing.assert_close(half, model(**read))
    light = torch.tensor([1, 1, 1, 1, 1e-12, 1e-12]).double()[None, :, None]
    alone = model(**inputs(zoo.bert, token[:, :4], torch.ones(1, 4)))
    torch.testing.assert_close(model(**read | {"mask": light})[:, :4], alone)


def test_new_lengths_are_not_lowered_again(monkeypatch):
    program = compiled(zoo.bert, "out")
    token = torch.zeros(4, 64).long()
    program(**inputs(zoo.bert, token, of_lengths(64, 64, 3, 9, 20)))
    monkeypatch.setattr(prepare, "build_step", lambda *_: pytest.fail("lowered again"))
    for lengths in ((64, 64, 64, 64), (1, 2, 3, 4), (64, 5, 64, 5), (30, 30, 1, 1)):
        program(**inputs(zoo.bert, token, of_lengths(64, *lengths)))


def test_ragged_batches_compute_real_pairs():
    score = R.x(V.J).T @ R.x(V.I)
    for where, count in (
        ((), lambda n: n * n),
        ((R.special.leq(V.J, V.I),), lambda n: n * (n + 1) // 2),
    ):
        rules = [
            (R.w(V.I, V.J) <= (score, *where)) | [F.sum, F.softmax_agg(agg_terms=[V.J])],
            (R.y(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
        ]
        model = Program(rules).compile(R.y, dtype=torch.float64)
        generator = torch.Generator().manual_seed(0)
        samples = [torch.randn(n, 8, generator=generator).double() for n in (300, 10, 20)]
        (found,) = pairs(model, x=ragged(samples))
        assert found == sum(map(count, (300, 10, 20)))
        rows = torch.stack(list(dict(model.rows(x=ragged(samples))).values()))
        alone = torch.cat([model(x=sample) for sample in samples])
        torch.testing.assert_close(rows, alone, atol=1e-12, rtol=1e-12)


def test_runs():
    keys = torch.log(of_lengths(8, 8, 8, 3, 0, 3).double())
    runs = runs_of(keys, keys, 5, 8)
    assert [(r.first, r.samples, r.queries) for r in runs] == [
        (0, 2, (0, 8)), (2, 1, (0, 3)), (3, 1, (0, 0)), (4, 1, (0, 3)),
    ]  # fmt: skip
    assert [r.pairs for r in runs] == [128, 9, 0, 9]
    assert is_relative(None)
    assert is_relative(zoo.block.parse("strided(3) & ~causal()"))
    assert not is_relative(zoo.block.parse("fixed(3)"))


@pytest.mark.parametrize("left", [False, True])
def test_pairs_inside_transformers(left, monkeypatch):
    """`hf.use` with a padded batch, on either side: real pairs, and what transformers computes."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=300, attn_implementation="sdpa",
    )  # fmt: skip
    theirs = transformers.BertModel(config).double().eval()
    token = torch.randint(3, 30, (3, 200))
    mask = of_lengths(200, 200, 9, 9, left=left)
    with torch.no_grad():
        expected = theirs(token, attention_mask=mask.long()).last_hidden_state
    computed = []
    plain = graph_attention.attention

    def counted(q, k, *rest, **options):
        computed.append(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2])
        return plain(q, k, *rest, **options)

    monkeypatch.setattr(graph_attention, "attention", counted)
    hf.use(theirs, full())
    with torch.no_grad():
        found = theirs(token, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(found[mask], expected[mask], atol=1e-9, rtol=1e-9)
    assert sum(computed) == 2 * 2 * (200**2 + 9**2 + 9**2)


@pytest.mark.parametrize("there", [(1.0, 1.0, 1.0, 1.0), (1.0, 0.5, 2.0, 0.25)])
def test_a_mask_that_learns_has_its_gradient(there):
    logit = R.k(V.J).T @ R.q(V.I) + R.present(V.J)
    program = Program(
        [
            *zoo.parts.present(R.mask, R.present),
            (R.weights(V.I, V.J) <= (logit,)) | [F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.weights(V.I, V.J), R.v(V.J))) | [F.product],
        ]
    )
    q, k, v = torch.randn(3, 4, 8, dtype=torch.float64)
    found = []
    for without in ((), ("fuse attention",)):
        mask = torch.tensor(there, dtype=torch.float64, requires_grad=True)
        model = program.compile(R.out, dtype=torch.float64, without=without)
        out = model(q=q, k=k, v=v, mask=mask)
        found.append(torch.autograd.grad(out.square().sum(), mask)[0])
    torch.testing.assert_close(*found)
