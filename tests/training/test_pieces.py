"""The parts of a run one by one: data, objectives, schedules."""

import gzip
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_recipe import loaded
from torch.nn.functional import cross_entropy

from edgewise import EdgewiseError
from edgewise.training.data.batches import IGNORED, Buckets, examples
from edgewise.training.data.labelled import LabelledData
from edgewise.training.data.pairs import PairData
from edgewise.training.data.text import TextData
from edgewise.training.objectives.texts import Masked
from edgewise.training.ranks.group import ALONE
from edgewise.training.ranks.ways import OneProcess, Setup


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 5))
def test_every_example_comes_once_in_each_round(count, size, seed):
    steps = -(-3 * count // size)
    seen = torch.cat([examples(count, size, seed, step) for step in range(steps)])
    for first in range(0, 3 * count, count):
        assert sorted(seen[first : first + count].tolist()) == list(range(count))
    assert torch.equal(examples(count, size, seed, 3), examples(count, size, seed, 3))


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.integers(1, 9),
    st.integers(8, 99),
    st.integers(0, 3),
)
def test_buckets_have_every_example_once_in_each_epoch(lengths, size, tokens, seed):
    buckets = Buckets(lengths, size, tokens)
    once = len(buckets._order(seed, 0))
    for epoch in (1, 0):
        seen = []
        for step in range(epoch * once, (epoch + 1) * once):
            width, chosen = buckets.batch(seed, step)
            assert len(chosen) == 1 or len(chosen) <= min(size, tokens // width)
            assert all(width - 8 < lengths[i] <= width for i in chosen.tolist())
            seen += chosen.tolist()
        assert sorted(seen) == list(range(len(lengths)))


def test_characters_are_windows_and_what_comes_next(tmp_path):
    (tmp_path / "text.txt").write_text("abcdefghij" * 30)
    corpus = TextData(path="text.txt", tokenizer="characters", context=7).read(tmp_path)
    assert corpus.tokenizer.decode(range(10)) == "abcdefghij"
    batch = corpus.batch(4, 0, 1)
    assert batch["token"].shape == (4, 7)
    assert torch.equal(batch["next"], (batch["token"] + 1) % 10)
    assert torch.equal(batch["token"], corpus.batch(4, 0, 1)["token"])
    assert not torch.equal(batch["token"], corpus.batch(4, 0, 2)["token"])
    held = torch.cat([b["token"].flatten() for b in corpus.validation(2)])
    assert torch.equal(held, corpus.parts["validation"][: len(held)])
    assert len(held) == 28


def test_the_causal_loss_is_the_cross_entropy(tmp_path):
    recipe = loaded(tmp_path)
    corpus = recipe.data.read(tmp_path)
    model = recipe.model.build(corpus.words, corpus, 0).eval()
    batch = corpus.batch(3, 0, 0)
    logits = model(batch["token"])
    wanted = cross_entropy(logits.transpose(1, 2), batch["next"])
    torch.testing.assert_close(recipe.objective.loss(model, batch), wanted)


def test_a_gpt_does_not_look_ahead(tmp_path):
    recipe = loaded(tmp_path)
    corpus = recipe.data.read(tmp_path)
    model = recipe.model.build(corpus.words, corpus, 0).eval()
    token = corpus.batch(1, 0, 0)["token"]
    other = token.clone()
    other[0, 5:] = (other[0, 5:] + 1) % corpus.words
    torch.testing.assert_close(model(token)[0, :5], model(other)[0, :5])
    assert not torch.allclose(model(token)[0, 5:], model(other)[0, 5:])


def test_a_mask_hides_the_share_that_it_says():
    token = torch.randint(50, (200, 100), generator=torch.Generator().manual_seed(0))
    shown, asked = Masked(share=0.2).corrupted(token, 50, 1)
    chosen = asked != IGNORED
    assert torch.equal(asked[chosen], token[chosen])
    assert torch.equal(shown[~chosen], token[~chosen])
    assert abs(chosen.float().mean() - 0.2) < 0.01
    masked, kept = (shown[chosen] == 50).float().mean(), (shown == token)[chosen].float().mean()
    assert abs(masked - 0.8) < 0.02
    assert abs(kept - 0.1 - 0.1 / 50) < 0.02


def test_labelled_sentences(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1 a good film\n0 bad\n"))
    (tmp_path / "b").write_text("0 a new word\n")
    corpus = LabelledData(train="a", validation="b", test="b").read(tmp_path)
    known = corpus.tokenizer.get_vocab()
    assert sorted(known, key=known.get) == ["<pad>", "<unknown>", "a", "bad", "film", "good"]
    (batch,) = corpus.validation(8)
    assert batch["token"].tolist() == [[2, 1, 1]]
    assert batch["label"].tolist() == [0]
    seen = corpus.batch(2, 0, 0)
    assert sorted(seen["lengths"].tolist()) == [1, 3]


def test_a_line_without_a_class(tmp_path):
    (tmp_path / "a").write_text("1 good\ngood\n")
    with pytest.raises(EdgewiseError, match="line 2"):
        LabelledData(train="a", validation="a", test="a").read(tmp_path)


def test_a_class_that_was_never_trained(tmp_path):
    (tmp_path / "a").write_text("1 good\n0 bad\n")
    (tmp_path / "b").write_text("1 good\n2 odd\n")
    with pytest.raises(EdgewiseError, match="row 2 has class 2"):
        LabelledData(train="a", validation="b", test="a").read(tmp_path)


def pairs(folder, sizes=(9, 9)):
    lines = ["A dog runs.", "Two dogs, and a cat!", "the cat"]
    for part in ("train", "val", "test"):
        for end, size in zip(("en", "de"), sizes, strict=True):
            text = "".join(f"{lines[i % 3]}\n" for i in range(size))
            (folder / f"{part}.{end}").write_text(text)
    return PairData(source="en", target="de", longest=20, pieces=300)


def test_pairs_of_sentences(tmp_path):
    corpus = pairs(tmp_path).read(tmp_path)
    batch = corpus.batch(4, 0, 0)
    assert batch["source"].shape == (4, 20)
    assert batch["token"].shape == batch["next"].shape == (4, 20)
    pad, start, end = (corpus.tokens[role] for role in ("pad", "start", "end"))
    assert (batch["token"][:, 0] == start).all()
    after, following = batch["token"][:, 1:], batch["next"][:, :-1]
    assert torch.equal(after[after != pad], following[(following != IGNORED) & (following != end)])
    assert ((batch["next"] == end).sum(1) == 1).all()
    for row, length in zip(batch["source"], batch["lengths"].tolist(), strict=True):
        assert row[length - 1] == end
        assert (row[length:] == pad).all()
    assert [corpus.text(b) for _, b in corpus.parts["test"][:2]] == [
        "a dog runs.",
        "two dogs, and a cat!",
    ]


def test_pairs_that_are_all_too_long(tmp_path):
    pairs(tmp_path)
    with pytest.raises(EdgewiseError, match="raise `longest`"):
        PairData(source="en", target="de", longest=2, pieces=300).read(tmp_path)


def test_pairs_that_do_not_belong_together(tmp_path):
    with pytest.raises(EdgewiseError, match="8 lines"):
        pairs(tmp_path, (9, 8)).read(tmp_path)


@pytest.mark.parametrize("end", ["en", "de"])
@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_files_without_a_sentence(tmp_path, part, end):
    made = pairs(tmp_path)
    (tmp_path / f"{part}.{end}").write_text("\n \n")
    with pytest.raises(EdgewiseError, match="no sentence") as caught:
        made.read(tmp_path)
    assert caught.value.code == "bad-data"


@pytest.mark.parametrize(
    ("text", "said"), [("0 a\n0 b\n", "all rows have class 0"), ("² a\n", "the number of a class")]
)
def test_classes_that_are_none(tmp_path, text, said):
    (tmp_path / "lines").write_text(text)
    with pytest.raises(EdgewiseError, match=said) as caught:
        LabelledData(train="lines", validation="lines", test="lines").read(tmp_path)
    assert caught.value.code == "bad-data"


def test_a_batch_without_masked_tokens_changes_nothing(tmp_path):
    recipe = loaded(tmp_path)
    corpus = recipe.data.read(tmp_path)
    setup = Setup(replace(recipe, objective=Masked(share=0.0)), corpus, None, ALONE, "cpu")
    batch = setup.recipe.objective.drawn(corpus.batch(2, 0, 0), corpus, 0)
    assert OneProcess(setup).part(batch) == (batch, 0.0)
