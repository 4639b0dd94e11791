"""Encoder–decoders of BART's family against `transformers`, in float64."""

import tempfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_parity import batches, few
from theirs import assert_equal, fused, pair, transformers, with_exact_numbers

from edgewise import EdgewiseError, numbers, zoo

CLASSES = {
    "Bart": "BartForConditionalGeneration",
    "MBart": "MBartForConditionalGeneration",
    "Marian": "MarianMTModel",
}


@st.composite
def sizes(draw, d: tuple[int, ...]):
    """Two stacks of different depth."""
    heads, hidden = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    return {
        "vocab_size": draw(st.integers(20, 30)),
        "d_model": heads * draw(st.sampled_from(d)),
        "encoder_layers": draw(st.integers(1, 2)),
        "decoder_layers": draw(st.integers(1, 2)),
        **{f"{side}_attention_heads": heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": hidden for side in ("encoder", "decoder")},
    }


vocabularies = st.sampled_from([20, 23]).flatmap(
    lambda size: st.sampled_from(
        [{}, {"decoder_vocab_size": size, "share_encoder_decoder_embeddings": False}]
    )
)


@pytest.mark.parametrize("name", CLASSES)
@few
@given(data=st.data())
def test_logits(name, data):
    token, mask, _ = data.draw(batches())
    target = torch.randint(3, 20, (len(token), data.draw(st.integers(1, 8))))
    config = getattr(transformers, f"{name}Config")(
        **data.draw(sizes((2, 4, 6))),
        max_position_embeddings=12,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        scale_embedding=data.draw(st.booleans()),
        activation_function=data.draw(st.sampled_from(["gelu", "swish", "relu"])),
        **(data.draw(vocabularies) if name == "Marian" else {}),
    )
    both = pair(getattr(transformers, CLASSES[name])(config), 0)
    inputs = {
        "source": numbers(token), "mask": mask.double()[..., None], "target": numbers(target),
    }  # fmt: skip
    assert fused(both.ours.model, **inputs)

    def run(model):
        found = with_exact_numbers(model)
        return found(input_ids=token, attention_mask=mask, decoder_input_ids=target).logits

    assert_equal(both, "logits", inputs, run, fixed=("logits.bias",))


@few
@given(data=st.data())
def test_whisper(data):
    frames, mels = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    target = torch.randint(3, 20, (2, data.draw(st.integers(1, 8))))
    feature = torch.randn(2, mels, 2 * frames, dtype=torch.float64)
    config = transformers.WhisperConfig(
        **data.draw(sizes((4, 6))),
        num_mel_bins=mels,
        max_source_positions=frames,
        max_target_positions=12,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 1),
        decoder_start_token_id=2,
    )
    both = pair(transformers.WhisperForConditionalGeneration(config), 0)
    inputs = {"feature": feature.mT, "target": numbers(target)}
    assert fused(both.ours.model, **inputs)

    def run(model):
        return model(input_features=feature, decoder_input_ids=target).logits

    assert_equal(both, "logits", inputs, run, fixed=("encoder.position",))


def test_two_vocabularies_translate_numbers():
    """One tokenizer would read the source and misread what is made of it."""
    config = zoo.bart.Config(
        9, 8, 2, 8, 1, 1, 12, normed=False, positions="sinusoidal", source_vocabulary=14
    )
    weights = zoo.bart.program(config).weights(seed=0, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        zoo.save_pretrained(f"{folder}/model", zoo.bart, config, weights)
        found = zoo.from_pretrained(f"{folder}/model")
    assert found.config == config
    source, mask = torch.tensor([[13, 5, 2]]), torch.ones(1, 3, 1)
    (row,) = found.respond(most=4, beams=1, source=numbers(source), mask=mask)
    assert all(token < 9 for token in row)
    with pytest.raises(EdgewiseError, match="two vocabularies"):
        found.translate(["a text"])


@pytest.mark.parametrize("name", [*CLASSES, "Whisper"])
def test_bodies(name):
    two = {f"{side}_{n}": 2 for side in ("encoder", "decoder") for n in ("layers", "ffn_dim")}
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    tokens = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    own = {"max_position_embeddings": 9}
    if name == "Whisper":
        own = {"max_source_positions": 3, "num_mel_bins": 2, "bos_token_id": 1}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=20, d_model=8, **two, **heads, **tokens, **own
    )
    both = pair(getattr(transformers, f"{name}Model")(config), 0)
    token, target = torch.randint(3, 20, (2, 5)), torch.randint(3, 20, (2, 3))
    inputs = {"source": numbers(token), "mask": torch.ones(2, 5, 1).double()}
    given = {"input_ids": token}
    if name == "Whisper":
        sound = torch.randn(2, 2, 6, dtype=torch.float64)
        inputs, given = {"feature": sound.mT}, {"input_features": sound}

    def run(model):
        found = with_exact_numbers(model)(**given, decoder_input_ids=target)
        return found.last_hidden_state

    fixed = ("encoder.position",) if name == "Whisper" else ()
    assert_equal(both, both.ours.output, inputs | {"target": numbers(target)}, run, fixed=fixed)
