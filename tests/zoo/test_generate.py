"""Texts that go on: the tokens that `transformers` generates, from the same checkpoint."""

import pytest
import torch

from edgewise import EdgewiseError, zoo
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


def saved(make, folder):
    torch.manual_seed(0)
    theirs = make().eval()
    theirs.save_pretrained(folder)
    words(folder)
    return theirs


@pytest.mark.parametrize("make", [llama, gpt2])
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
