"""Programs that read relations of the batch: equal to a dense mask of the same pairs."""

import copy

import hf_models as models
import pytest
import torch
from test_use import hidden, tokens

from edgewise import EdgewiseError, F, Program, R, V, hf
from edgewise.graphs import causal, window

LENGTHS = torch.tensor([[9], [5], [2]])
REAL = {
    "no padding": torch.ones(3, 9).bool(),
    "right": torch.arange(9) < LENGTHS,
    "left": torch.arange(9) >= 9 - LENGTHS,
}
ARCS = torch.rand(3, 9, 9, generator=torch.Generator().manual_seed(0)) < 0.4
SPEAKERS = torch.randint(0, 3, (3, 9), generator=torch.Generator().manual_seed(1))


def rules(*condition, score=()):
    body = (R.k(V.H, V.J).T @ R.q(V.H, V.I), *score, *condition)
    return [
        (R.weights(V.H, V.I, V.J) <= body) | [F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
    ]


AROUND = Program([
    R.near(V.I, V.J) <= R._arc(V.I, V.J), *rules(R._near(V.I, V.J)),
])  # fmt: skip
SAME = Program([
    R.same(V.I, V.J) <= (R._speaker(V.I, V.S), R._speaker(V.J, V.S)), *rules(R._same(V.I, V.J)),
])  # fmt: skip


def padded_keys(mask):
    """(batch, 2, rows), filled up with -1."""
    each = [one.nonzero().T for one in mask]
    out = torch.full((len(each), 2, max(e.shape[1] for e in each)), -1)
    for row, e in zip(out, each, strict=True):
        row[:, : e.shape[1]] = e
    return out


def reference(model, pairs):
    other = copy.deepcopy(model)
    other.set_attn_implementation(models.register_reference(Of(pairs)))
    return other


class Of:
    def __init__(self, pairs):
        self.pairs = pairs

    def dense(self, n):
        return self.pairs[:, None]


def assert_same(model, program, arguments, pairs, real):
    other = reference(model, pairs)
    hf.use(model, program)
    ids = tokens(3)
    ours = hidden(model, ids, real.long(), **arguments)[real]
    theirs = hidden(other, ids, real.long())[real]
    torch.testing.assert_close(ours, theirs)
    mine, yours = (
        models.gradients(m, x.square().sum()) for m, x in ((model, ours), (other, theirs))
    )
    assert mine.keys() == yours.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], yours[name])


@pytest.mark.parametrize("form", ["dense", "keys", "list"])
@pytest.mark.parametrize("padding", REAL)
def test_arcs(padding, form):
    real = REAL[padding]
    arcs = ARCS & real[:, None] & real[:, :, None] | torch.eye(9).bool()
    arguments = {"dense": arcs, "keys": padded_keys(arcs), "list": [a.nonzero().T for a in arcs]}
    assert_same(models.built(models.bert), AROUND, {"arc": arguments[form]}, arcs, real)


@pytest.mark.parametrize("padding", REAL)
def test_speakers(padding):
    same = SPEAKERS[:, :, None] == SPEAKERS[:, None]
    assert_same(models.built(models.bert), SAME, {"speaker": SPEAKERS}, same, REAL[padding])


@pytest.mark.parametrize("make", [models.gpt2, models.llama])
@pytest.mark.parametrize("padding", ["no padding", "right"])
def test_decoders(make, padding):
    program = Program([
        R.same(V.I, V.J) <= (R._speaker(V.I, V.S), R._speaker(V.J, V.S)),
        *rules(R._same(V.I, V.J), causal()(V.I, V.J)),
    ])  # fmt: skip
    same = (SPEAKERS[:, :, None] == SPEAKERS[:, None]) & causal().dense(9)
    assert_same(models.built(make), program, {"speaker": SPEAKERS}, same, REAL[padding])


def test_values_of_tokens():
    """A float tensor is a value of every token; its gradient follows."""
    program = Program(rules(score=(R.surprise(V.J)["by":1, 3],)))
    model = hf.use(models.built(models.bert), program)
    surprise = torch.randn(3, 9, 3, dtype=torch.float64, requires_grad=True)
    real = REAL["left"]
    places = (real.cumsum(1) - 1).clamp_min(0)
    ids = tokens(3)
    out = hidden(model, ids, real.long(), position_ids=places, surprise=surprise)
    for row, one in enumerate(real):
        alone = hidden(model, ids[row : row + 1, one], surprise=surprise[row : row + 1, one])
        torch.testing.assert_close(out[row, one], alone[0])
    (found,) = torch.autograd.grad(out[real].sum(), surprise)
    assert bool((found[real].abs().sum(-1) > 0).all())
    assert not bool(found[~real].any())


def test_a_changed_batch_is_read_again():
    model, ids = hf.use(models.built(models.bert), AROUND), tokens(3)
    arcs = ARCS | torch.eye(9).bool()
    first = hidden(model, ids, arc=arcs)
    assert torch.equal(hidden(model, ids, arc=arcs), first)
    arcs.copy_(torch.eye(9).bool().expand(3, 9, 9))
    assert not torch.allclose(hidden(model, ids, arc=arcs), first)
    torch.testing.assert_close(hidden(model, ids, arc=ARCS | torch.eye(9).bool()), first)


def test_a_token_without_pairs_has_no_attention():
    model = hf.use(models.built(models.bert), AROUND)
    none = torch.full((3, 2, 1), -1)
    assert hidden(model, tokens(3), arc=none).isfinite().all()


def test_gradient_checkpointing():
    model = hf.use(models.built(models.bert), SAME).train()
    batch = {"speaker": SPEAKERS}
    wanted = models.gradients(model, hidden(model, tokens(3), **batch).square().sum())
    models.checkpoint_activations(model)
    out = hidden(model, tokens(3), **batch)
    other = hidden(model, tokens(3), speaker=torch.zeros_like(SPEAKERS))
    found = models.gradients(model, out.square().sum() + 0 * other.sum())
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name])


def test_part_of_a_model():
    """The encoder of a translation model reads arcs, its decoder does not."""
    model = models.built(models.t5)
    bias = Program([
        *AROUND.rules[:1],
        *rules(R._near(V.I, V.J), score=(R.bias(V.H, V.I, V.J),)),
    ])  # fmt: skip
    hf.use(model, {"encoder": bias, "decoder": window(2)})
    arcs = ARCS | torch.eye(9).bool()
    out = hidden(model, tokens(3), decoder_input_ids=tokens(3, 5), arc=arcs)
    assert out.isfinite().all()
    every = hidden(model, tokens(3), decoder_input_ids=tokens(3, 5), arc=torch.ones(3, 9, 9).bool())
    assert not torch.allclose(out, every)
    hf.use(model, {"decoder": window(2)})
    torch.testing.assert_close(hidden(model, tokens(3), decoder_input_ids=tokens(3, 5)), every)


BAD = {
    "missing": (AROUND, {}, "missing-relation", "reads `arc`"),
    "another name": (AROUND, {"arcs": ARCS}, "unsupported-argument", "`arcs`"),
    "another length": (AROUND, {"arc": ARCS[:, :8, :8]}, "bad-relation", "9 tokens"),
    "another batch": (AROUND, {"arc": ARCS[:2]}, "bad-relation", "2 samples, the batch 3"),
    "a key too far": (AROUND, {"arc": torch.full((3, 2, 1), 9)}, "bad-relation", "token 9, sample"),
    "another arity": (AROUND, {"arc": torch.zeros(3, 3, 1).long()}, "bad-relation", "(2, rows)"),
    "text": (AROUND, {"arc": "arcs"}, "bad-relation", "got str"),
    "floats in a list": (AROUND, {"arc": [torch.ones(2, 1)] * 3}, "bad-relation", "integer"),
    "labels of other tokens": (SAME, {"speaker": SPEAKERS[:, :5]}, "bad-relation", "5 labels"),
    "an argument of the model": (
        Program([R.out(V.H, V.I) <= (R.v(V.H, V.I), R.token_type_ids(V.I))]),
        {},
        "bad-program",
        "has an argument of that name",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_relations(case):
    program, arguments, code, text = BAD[case]
    model = models.built(models.bert)
    with pytest.raises(EdgewiseError) as caught:
        hidden(hf.use(model, program), tokens(3), **arguments)
    assert caught.value.code == code
    assert text in str(caught.value)


def test_a_decoder_refuses_arcs_to_later_tokens():
    with pytest.raises(EdgewiseError, match="outside the mask `causal"):
        hidden(hf.use(models.built(models.llama), AROUND), tokens(3), arc=ARCS & causal().dense(9))


def test_with_a_cache_relations_are_those_of_all_tokens():
    program = Program(rules(R._arc(V.I, V.J), causal()(V.I, V.J)))
    model = hf.use(models.built(models.llama), program)
    ids, arcs = tokens(3), ARCS | torch.eye(9).bool()
    wanted = model(ids, arc=arcs).logits
    cache = model(ids[:, :6], arc=arcs[:, :6, :6]).past_key_values
    step = model(ids[:, 6:], arc=arcs, past_key_values=cache).logits
    torch.testing.assert_close(step, wanted[:, 6:])
    with pytest.raises(EdgewiseError, match="it has 9 tokens"):
        model(
            ids[:, 6:],
            arc=arcs[:, 6:, 6:],
            past_key_values=model(ids[:, :6], arc=arcs[:, :6, :6]).past_key_values,
        )


SPOKEN = Program([
    R.same(V.I, V.J) <= (R._speaker(V.I, V.S), R._speaker(V.J, V.S)),
    *rules(R._same(V.I, V.J), causal()(V.I, V.J)),
])  # fmt: skip
GREEDY = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
FORMS = {
    "all tokens": SPEAKERS,
    "a list": list(SPEAKERS),
    "a function": lambda ids: SPEAKERS[:, : ids.shape[1]],
    "keys": torch.stack([torch.arange(9).expand(3, 9), SPEAKERS], 1),
}


def generated(model, ids, count, real, **relations):
    """Tokens and scores without `generate`: the model is called with the text so far."""
    logits = []
    for _ in range(count):
        n = ids.shape[1]
        more = torch.ones(len(ids), n - real.shape[1]).bool()
        here = {name: of(n) for name, of in relations.items()}
        mask = torch.cat([real, more], 1).long()
        places = (mask.cumsum(1) - 1).clamp_min(0)
        how = {"attention_mask": mask, "position_ids": places, "use_cache": False}
        logits.append(model(ids, **how, **here).logits[:, -1])
        ids = torch.cat([ids, logits[-1].argmax(-1)[:, None]], 1)
    return ids, torch.stack(logits).float()  # as `generate` has them


@pytest.mark.parametrize(
    ("make", "form", "how"),
    [
        *((models.llama, form, {}) for form in FORMS),
        (models.llama, "all tokens", {"use_cache": False}),
        (models.llama, "a function", {"cache_implementation": "static"}),
        (models.gpt2, "all tokens", {}),
    ],
)
def test_generation(make, form, how):
    model = hf.use(models.built(make), SPOKEN)
    real = torch.arange(5) >= torch.tensor([[0], [2], [4]])
    ids = tokens(3, 5).masked_fill(~real, 0)
    wanted, logits = generated(model, ids, 4, real, speaker=lambda n: SPEAKERS[:, :n])
    how = how | {
        "attention_mask": real.long(),
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    found = model.generate(ids, speaker=FORMS[form], **GREEDY, **how)
    assert torch.equal(found.sequences, wanted)
    torch.testing.assert_close(torch.stack(found.logits), logits)
    other = model.generate(ids, speaker=SPEAKERS * 0, **GREEDY, **how)
    assert not torch.allclose(torch.stack(other.logits), logits)


def test_generation_with_arcs_values_and_beams():
    program = Program(
        rules(R._arc(V.I, V.J), causal()(V.I, V.J), score=(R.surprise(V.J)["by":1, 3],))
    )
    model = hf.use(models.built(models.llama), program)
    arcs, values = ARCS | torch.eye(9).bool(), torch.randn(3, 9, 3).double()
    how = {**GREEDY, "num_beams": 3, "surprise": values}
    wanted = model.generate(tokens(3, 5), arc=arcs, use_cache=False, **how)
    for form in (arcs, padded_keys(arcs), [one.nonzero().T for one in arcs]):
        assert torch.equal(model.generate(tokens(3, 5), arc=form, **how), wanted)
    copied = copy.deepcopy(model)
    hf.restore(model)
    assert torch.equal(copied.generate(tokens(3, 5), arc=arcs, **how), wanted)
    with pytest.raises(ValueError, match="not used by the model"):
        model.generate(tokens(3, 5), arc=arcs, **GREEDY)


def test_generation_of_a_translation_whose_source_has_arcs():
    model = models.built(models.t5)
    bias = Program([
        *AROUND.rules[:1],
        *rules(R._near(V.I, V.J), score=(R.bias(V.H, V.I, V.J),)),
    ])  # fmt: skip
    hf.use(model, {"encoder": bias})
    arcs = ARCS | torch.eye(9).bool()
    first = torch.zeros(3, 1).long()
    wanted = model(tokens(3), decoder_input_ids=first, arc=arcs).logits[:, 0].float()
    how = {**GREEDY, "return_dict_in_generate": True, "output_logits": True}
    found = model.generate(tokens(3), arc=arcs, decoder_start_token_id=0, **how)
    torch.testing.assert_close(found.logits[0], wanted)
    other = model.generate(tokens(3), arc=arcs | True, decoder_start_token_id=0, **how)
    assert not torch.allclose(other.logits[0], wanted)


@pytest.mark.parametrize(
    ("relation", "code", "said"),
    [
        ({"speaker": SPEAKERS[:, :5]}, "bad-relation", "a function of the tokens so far"),
        ({"speaker": lambda ids: SPEAKERS}, "bad-relation", "9 labels for 5 tokens"),
        ({"speaker": SPEAKERS[:2]}, "bad-relation", "2 samples"),
        ({}, "missing-relation", "generate(..., speaker=...)"),
    ],
)
def test_generation_without_the_relations_of_new_tokens(relation, code, said):
    model = hf.use(models.built(models.llama), SPOKEN)
    with pytest.raises(EdgewiseError) as caught:
        model.generate(tokens(3, 5), **relation, **GREEDY)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_packed_texts():
    """Keys are places of the packed row; arcs between texts are none."""
    program = Program(rules(R._arc(V.I, V.J), causal()(V.I, V.J)))
    model = hf.use(models.built(models.llama), program)
    ids, places = tokens(1, 9), torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]])
    arcs = ARCS[:1] | torch.eye(9).bool()
    out = hidden(model, ids, position_ids=places, arc=arcs, use_cache=False)
    for first, stop in ((0, 4), (4, 6), (6, 9)):
        own = arcs[:, first:stop, first:stop]
        alone = hidden(model, ids[:, first:stop], arc=own, use_cache=False)
        torch.testing.assert_close(out[:, first:stop], alone)
