"""Models of recipes: padding is nothing, and decoding is what training saw."""

from types import SimpleNamespace as Sizes

import pytest
import torch

from edgewise import numbers
from edgewise.decode import RecomputingDecoder, beam
from edgewise.training.models.classifier import Classifier
from edgewise.training.models.language import Encoder
from edgewise.training.models.translation import Recurrent, Translator

SMALL = {"layers": 2, "heads": 2, "size": 8, "hidden": 12}
START, STOP = 2, 3


def tokens(*shape, words=20):
    return torch.randint(4, words, shape, generator=torch.Generator().manual_seed(0))


def test_padding_does_not_change_a_class():
    model = (
        Classifier(**SMALL, dropout=0.1).build(20, Sizes(longest=9, classes=3), 0).double().eval()
    )
    token, lengths = tokens(3, 9), torch.tensor([9, 4, 1])
    out = model(token, lengths)
    assert out.shape == (3, 3)
    for row, length in enumerate(lengths.tolist()):
        alone = model(token[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(out[row], alone[0])


def test_padding_does_not_change_a_translation():
    model = Translator(**SMALL, dropout=0.1).build(20, Sizes(longest=15), 0).double().eval()
    source, lengths, token = tokens(3, 9), torch.tensor([9, 4, 1]), tokens(3, 5)
    out = model(source, lengths, token)
    assert out.shape == (3, 5, 20)
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone = model(source[one, :length], lengths[one], token[one])
        torch.testing.assert_close(out[row], alone[0])
    shorter = model(source, lengths, token[:, :2])
    torch.testing.assert_close(out[:, :2], shorter)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_translations_are_the_likeliest_that_are_followed(beams):
    """With one beam every piece is the likeliest after those before it."""
    model = Translator(**SMALL).build(20, Sizes(longest=6), 0).double().eval()
    source, lengths = tokens(4, 7), torch.tensor([7, 3, 5, 1])
    how = {"start": START, "stop": STOP, "beams": beams, "alpha": 1.0}
    found = model.translate(source, lengths, **how)
    whole = torch.cat([torch.full((4, 1), START), found], 1)
    logits = model(source, lengths, whole[:, :-1])
    for row in range(4):
        end = (found[row] == STOP).nonzero()
        last = int(end[0]) + 1 if len(end) else found.shape[1]
        if beams == 1:
            assert torch.equal(logits[row, :last].argmax(-1), found[row, :last])
        assert last <= 12
    padded = model.translate(torch.nn.functional.pad(source, (0, 3)), lengths, **how)
    width = min(found.shape[1], padded.shape[1])
    assert torch.equal(padded[:, :width], found[:, :width])


@pytest.mark.parametrize("attention", ["none", "dot", "general", "concat"])
def test_a_recurrent_model_writes_from_its_last_state_what_it_writes_from_the_start(attention):
    model = Recurrent(8, attention, 0.1).build(20, Sizes(longest=6), 0).double().eval()
    source, lengths = tokens(4, 7), torch.tensor([7, 3, 5, 1])
    how = {"beams": 3, "most": 11, "stop": STOP, "alpha": 1.0}
    first = torch.full((4, 1), START)
    for row in range(4):
        one = slice(row, row + 1)
        mask = torch.ones(1, int(lengths[row]), 1).double()
        end = mask.clone()
        end[:, :-1] = 0
        given = {"source": numbers(source[one, : lengths[row]]), "mask": mask, "end": end}
        given = {name: item for name, item in given.items() if name in model.program.inputs}
        again, _ = beam(RecomputingDecoder(model.program, "target", 12, **given), first[one], **how)
        found = model.translate(source[one], lengths[one], start=START, **how_of(how))
        assert torch.equal(found, again)
    together = model.translate(source, lengths, start=START, **how_of(how))
    width = found.shape[1]
    assert torch.equal(together[3:, :width], found)


def how_of(how):
    return {name: value for name, value in how.items() if name != "most"}


@pytest.mark.parametrize("attention", ["none", "general"])
def test_what_a_recurrent_model_reads_does_not_fade_before_it_is_trained(attention):
    """Words, what is added of them to a state, and logits begin with about the same size."""
    model = Recurrent(64, attention, 0.0).build(300, Sizes(longest=6), 0).eval()
    source = torch.randint(4, 300, (8, 9), generator=torch.Generator().manual_seed(0))
    logits = model(source, torch.full((8,), 9), source)
    assert 0.3 < float(logits.detach().std()) < 3
    other = model(source.flip(0), torch.full((8,), 9), source)
    assert float((logits - other).detach().std()) > 0.05  # another source is heard


def test_an_encoder_hears_both_sides():
    model = Encoder(**SMALL, graph="window(1)").build(20, Sizes(context=9), 0).double().eval()
    token = tokens(1, 9)
    other = token.clone()
    other[0, 8] = 4 + (other[0, 8] - 3) % 16
    changed = (model(token) - model(other)).abs().amax(-1)[0] > 1e-12
    assert changed.tolist() == [False] * 6 + [True] * 3  # two layers reach two places


OTHERS = {
    "aggregation": {"aggregation": "sum", "graph": "per_head(window(2), causal())"},
    "rows without keys": {"graph": "full() - window(1)"},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_models_without_a_cache_are_decoded_by_recomputing(options):
    sizes = {"layers": 1, "heads": 2, "size": 8, "positions": "sinusoidal", **options}
    model = Translator(hidden=8, **sizes).build(20, Sizes(longest=6), 0).double().eval()
    source, lengths = tokens(3, 5), torch.tensor([5, 2, 4])
    found = model.translate(source, lengths, start=START, stop=STOP, beams=1, alpha=1.0)
    given = torch.cat([torch.full((3, 1), START), found[:, :-1]], 1)
    before = (found == STOP).cumsum(1) - (found == STOP).int() == 0
    likeliest = model(source, lengths, given).argmax(-1)
    assert torch.equal(likeliest[before], found[before])


@pytest.mark.parametrize("graph", ["window(2)", "full() - window(1)"])
@pytest.mark.parametrize("aggregation", ["sum", "mean", "max"])
def test_padding_does_not_change_an_aggregation(aggregation, graph):
    """Of keys that are padding alone too, without a norm after which nothing is large."""
    options = {**SMALL, "aggregation": aggregation, "graph": graph, "norm": "none"}
    model = Classifier(**options).build(20, Sizes(longest=9, classes=3), 0).double().eval()
    token, lengths = tokens(3, 9), torch.tensor([9, 4, 1])
    out = model(token, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(token[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(out[row], alone[0])
