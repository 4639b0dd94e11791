"""Texts that go on: the tokens that `transformers` generates, from the same checkpoint."""

import json

import pytest
import torch

from edgewise import EdgewiseError, numbers, zoo
from edgewise.cli import main

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
WORDS = ["<unk>", "</s>", *(f"w{k}" for k in range(40))]


def words(folder):
    model = tokenizers.models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def llama():
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        eos_token_id=1, bos_token_id=None, initializer_range=0.6,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_embd=24, n_layer=2, n_head=4, n_positions=64,
        eos_token_id=1, bos_token_id=None, initializer_range=0.6,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def t5():
    config = transformers.T5Config(
        vocab_size=len(WORDS), d_model=24, d_kv=6, d_ff=32, num_layers=2, num_heads=4,
        decoder_start_token_id=0, eos_token_id=1, pad_token_id=0, initializer_factor=3.0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def both(name, **own):
    """An encoder–decoder of BART's family."""
    two = {
        f"{side}_{n}": 2 for side in ("encoder", "decoder") for n in ("layers", "attention_heads")
    }
    hidden = {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "bos_token_id": 0}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(WORDS), d_model=12, init_std=0.9, **two | hidden | tokens | own
    )
    kind = "MarianMTModel" if name == "Marian" else f"{name}ForConditionalGeneration"
    return getattr(transformers, kind)(config)


def decoder(name, **own):
    config = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    sizes = {
        "vocab_size": len(WORDS), "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "eos_token_id": 1, "bos_token_id": None, "pad_token_id": 1,
        "initializer_range": 0.6,
    }  # fmt: skip
    return getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, config)(**sizes | own))


def gpt():
    config = transformers.OpenAIGPTConfig(
        vocab_size=len(WORDS), n_embd=24, n_layer=2, n_head=4, n_positions=64, eos_token_id=1,
        initializer_range=0.6,
    )  # fmt: skip
    return transformers.OpenAIGPTLMHeadModel(config)


KINDS = ["sliding_attention", "full_attention"]
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.0, 1.5, 2.0],
    "long_factor": [2.0, 4.0, 8.0],
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}
DECODERS = {
    "gpt": gpt,
    "qwen2": lambda: decoder("Qwen2"),
    "qwen3": lambda: decoder("Qwen3", head_dim=8),
    "mistral": lambda: decoder("Mistral", sliding_window=4),
    "gemma2": lambda: decoder("Gemma2", head_dim=8, sliding_window=4, attn_logit_softcapping=2.0),
    "gemma3": lambda: decoder("Gemma3", head_dim=8, sliding_window=4, layer_types=KINDS),
    "phi": lambda: decoder("Phi", hidden_size=32),
    "phi3": lambda: decoder("Phi3"),
    "longrope": lambda: decoder(
        "Phi3", original_max_position_embeddings=12, rope_parameters=LONGROPE
    ),
    "yarn": lambda: decoder("Qwen3", head_dim=8, rope_parameters=YARN),
    "dynamic": lambda: decoder("Mistral", rope_parameters=DYNAMIC),
}
BOTH = {"bart": "Bart", "mbart": "MBart", "marian": "Marian"}
CONSTRAINTS = {
    "forced_eos_token_id": 1, "forced_bos_token_id": 7, "suppress_tokens": [3, 9],
    "begin_suppress_tokens": [5], "min_length": 5, "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.3, "bad_words_ids": [[4], [8, 11]],
}  # fmt: skip


def saved(make, folder):
    torch.manual_seed(0)
    theirs = make().eval()
    theirs.save_pretrained(folder)
    words(folder)
    return theirs


@pytest.mark.parametrize(
    "make", [llama, gpt2, *DECODERS.values()], ids=["llama", "gpt2", *DECODERS]
)
def test_the_likeliest_tokens_are_theirs(make, tmp_path):
    theirs = saved(make, tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    for prompt in ("w3 w1 w4", "w9", "w2 w7 w1 w8 w2 w8"):
        ids = torch.tensor([ours.tokenizer.encode(prompt).ids])
        expected = theirs.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=1)
        row = expected[0, ids.shape[1] :].tolist()
        kept = row[: row.index(1)] if 1 in row else row
        pieces = []
        found = ours.generate(prompt, most=20, each=pieces.append)
        assert prompt + found == ours.tokenizer.decode([*ids[0].tolist(), *kept])
        assert "".join(pieces) == found


def test_a_translation_is_the_likeliest_row(tmp_path):
    theirs = saved(t5, tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    texts = ["w3 w1 w4 w1 w5", "w9 w2"]
    found = ours.translate(texts, most=8, beams=1)
    for text, got in zip(texts, found, strict=True):
        ids = torch.tensor([ours.tokenizer.encode(text).ids])
        row = theirs.generate(ids, max_new_tokens=8, do_sample=False)[0, 1:].tolist()
        kept = row[: row.index(1)] if 1 in row else row
        assert got == ours.tokenizer.decode(kept)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", BOTH)
def test_a_translation_is_theirs(name, constrained, tmp_path):
    theirs = saved(lambda: both(BOTH[name], max_position_embeddings=32), tmp_path)
    for option, value in (CONSTRAINTS if constrained else {}).items():
        setattr(theirs.generation_config, option, value)
    theirs.generation_config.save_pretrained(tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    texts = ["w3 w1 w4 w1 w5", "w9 w2"]
    found = ours.translate(texts, most=12, beams=1)
    for text, got in zip(texts, found, strict=True):
        ids = torch.tensor([ours.tokenizer.encode(text).ids])
        row = theirs.generate(ids, max_new_tokens=12, do_sample=False, num_beams=1)[0, 1:].tolist()
        assert got == ours.tokenizer.decode(row[: row.index(1)] if 1 in row else row)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [1, 12])
@pytest.mark.parametrize(
    "said",
    [
        {"eos_token_id": [9, 1]},
        {"eos_token_id": [9, 1, 4], "forced_eos_token_id": 1},
        {"forced_bos_token_id": 7, "begin_suppress_tokens": [5, 1, 9, 20, 30]},
        {},  # what config.json says of decoding does not count beside generation_config.json
    ],
)
def test_a_response_is_theirs_token_by_token(said, most, seed, tmp_path):
    transformers.set_seed(seed)
    theirs = both("MBart", max_position_embeddings=32).eval()
    theirs.save_pretrained(tmp_path)
    table = json.loads((tmp_path / "config.json").read_text()) | {"forced_eos_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps(table))
    said = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0} | said
    theirs.generation_config = transformers.GenerationConfig(**said)
    theirs.generation_config.save_pretrained(tmp_path)
    ours, ids = zoo.from_pretrained(tmp_path), torch.tensor([[3, 1, 4, 1, 5]])
    row = theirs.generate(ids, max_new_tokens=most, do_sample=False)[0, 1:].tolist()
    ends = [1, *said["eos_token_id"]] if isinstance(said["eos_token_id"], list) else [1]
    found = ours.respond(most=most, source=numbers(ids), mask=torch.ones(1, 5, 1))
    assert found == [row[: next((k for k, token in enumerate(row) if token in ends), len(row))]]


def test_sound_becomes_the_tokens_that_theirs_becomes(tmp_path):
    sizes = {"num_mel_bins": 3, "max_source_positions": 5, "max_target_positions": 32}
    theirs = saved(lambda: both("Whisper", **sizes, begin_suppress_tokens=[4]), tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    sound = torch.randn(2, 3, 10)
    found = ours.respond(feature=sound.mT, prompt=[0, 7], most=9)
    start = torch.tensor([[0, 7]] * 2)
    plain = transformers.GenerationMixin.generate
    rows = plain(theirs, sound, decoder_input_ids=start, max_new_tokens=9, do_sample=False)
    for got, row in zip(found, rows[:, 2:].tolist(), strict=True):
        assert got == (row[: row.index(1)] if 1 in row else row)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("suppress_tokens", [99]), ("forced_eos_token_id", "x"), ("min_length", -1),
        ("bad_words_ids", [[]]), ("repetition_penalty", 0), ("sequence_bias", [[[1], 2.0]]),
        ("encoder_no_repeat_ngram_size", 3),
    ],
)  # fmt: skip
def test_constraints_that_are_none(option, value, tmp_path):
    saved(lambda: both("Bart", max_position_embeddings=32), tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    ours.table[option] = value
    with pytest.raises(EdgewiseError, match=option) as caught:
        ours.translate(["w1"], most=2)
    assert caught.value.code == "bad-pretrained"


def test_constraints_are_saved(tmp_path):
    theirs = saved(lambda: both("Bart", max_position_embeddings=32), tmp_path / "theirs")
    theirs.generation_config.suppress_tokens = [3, 4]
    theirs.generation_config.save_pretrained(tmp_path / "theirs")
    zoo.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").generation_config
    assert again.suppress_tokens == [3, 4]
    assert again.forced_eos_token_id == theirs.generation_config.forced_eos_token_id
    assert again.eos_token_id == 1


def test_draws_are_reproducible(tmp_path):
    saved(llama, tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    drawn = [ours.generate("w3", most=12, temperature=2.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_command_goes_on_with_a_text(tmp_path, capsys):
    saved(gpt2, tmp_path)
    expected = zoo.from_pretrained(tmp_path).generate("w3 w1", most=9)
    assert main(["generate", str(tmp_path), "w3 w1", "--most", "9"]) == 0
    assert capsys.readouterr().out.startswith(f"w3 w1{expected}")


@pytest.mark.parametrize(
    ("make", "arguments", "code"),
    [
        (t5, ["generate", "w1"], "bad-pretrained"),
        (llama, ["translate", "w1"], "bad-pretrained"),
        (llama, ["generate", "w1 " * 64], "text-too-long"),
        (llama, ["generate", "w1", "--temperature", "-1"], "bad-decoding"),
        (llama, ["generate", "w1", "--most", "0"], "bad-decoding"),
        (llama, ["generate", "w1", "--temperature", "1", "--top-p", "3"], "bad-decoding"),
        (llama, ["generate", "w1", "--top-k", "3"], "bad-decoding"),
        (llama, ["generate", "w1", "--temperature", "1", "--seed", "-1"], "bad-decoding"),
        (llama, ["embed", "w1"], "bad-pretrained"),
    ],
)
def test_what_cannot_go_on(make, arguments, code, tmp_path, capsys):
    saved(make, tmp_path)
    verb, *rest = arguments
    assert main([verb, str(tmp_path), *rest]) == 2
    shown = capsys.readouterr()
    assert f"error[{code}]" in shown.err
    assert not shown.out


def test_a_text_that_is_empty_has_nothing_to_go_on_from(tmp_path):
    saved(llama, tmp_path)
    with pytest.raises(EdgewiseError):
        zoo.from_pretrained(tmp_path).generate("")


def test_any_of_several_tokens_ends_a_text(tmp_path):
    """The first that comes, as `transformers` has it; `generation_config.json` says which."""
    theirs = saved(llama, tmp_path)
    ids = torch.tensor([zoo.from_pretrained(tmp_path).tokenizer.encode("w3 w1").ids])
    row = theirs.generate(ids, max_new_tokens=9, do_sample=False, eos_token_id=None)[0, 2:].tolist()
    last = next(k for k in range(2, 9) if row[k] not in row[:k])
    theirs.generation_config.eos_token_id = [1, row[last]]
    theirs.save_pretrained(tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    pieces = []
    found = ours.generate("w3 w1", most=9, each=pieces.append)
    assert found.split() == [WORDS[token] for token in row[:last]]
    assert "".join(pieces) == found


@pytest.mark.parametrize("make", [llama, gpt2, t5])
def test_what_ends_a_text_is_saved(make, tmp_path):
    theirs = saved(make, tmp_path / "theirs")
    zoo.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours")
    for name in ("eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"):
        if getattr(theirs.config, name, None) is not None:
            assert getattr(again.config, name) == getattr(theirs.config, name), name


@pytest.mark.parametrize("given", ["x", -3, [[1]], True, 1.5])
@pytest.mark.parametrize("name", ["eos_token_id", "decoder_start_token_id"])
def test_tokens_that_are_none(name, given, tmp_path):
    saved(t5, tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    ours.table[name] = given
    with pytest.raises(EdgewiseError, match=name) as caught:
        ours.translate(["w1"], most=2)
    assert caught.value.code == "bad-pretrained"


def test_texts_that_are_none(tmp_path):
    saved(t5, tmp_path)
    ours = zoo.from_pretrained(tmp_path)
    for texts in ("w1", None, [None], ["\ud800"]):
        with pytest.raises(EdgewiseError) as caught:
            ours.translate(texts, most=2)
        assert caught.value.code == "bad-text"
    for how in ({"most": "3"}, {"most": True}):
        with pytest.raises(EdgewiseError) as caught:
            ours.translate(["w1"], **how)
        assert caught.value.code == "bad-decoding"
