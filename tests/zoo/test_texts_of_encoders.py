"""Classes and embeddings of texts: what pipelines and sentence-transformers make of a folder."""

import json

import pytest
import torch

from edgewise import EdgewiseError, zoo
from edgewise.cli import main

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{k}" for k in range(30))]
TEXTS = ["w3 w1 w4 w1 w5", "w9", "w2 w7 w21"]


def saved(folder, labels=3, kind="BertForSequenceClassification", **own):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=12, num_attention_heads=2, num_hidden_layers=2,
        intermediate_size=9, max_position_embeddings=32, initializer_range=0.5, **own,
        id2label={k: f"class {k}" for k in range(labels)},
    )  # fmt: skip
    theirs = getattr(transformers, kind)(config).eval()
    theirs.save_pretrained(folder)
    model = tokenizers.models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    template = tokenizers.processors.TemplateProcessing
    both = "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    tokenizer.post_processor = template(single="[CLS] $A [SEP]", pair=both, special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    return theirs, fast


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        *((3, p) for p in (None, "single_label_classification", "multi_label_classification")),
        *((1, p) for p in (None, "regression", "multi_label_classification")),
        (2, "regression"),
    ],
)
def test_classes_are_those_of_a_pipeline(labels, problem, tmp_path):
    theirs, tokenizer = saved(tmp_path, labels, problem_type=problem)
    pipe = transformers.pipeline("text-classification", theirs, tokenizer=tokenizer, top_k=None)
    ours = zoo.from_pretrained(tmp_path)
    ours.save_pretrained(tmp_path / "again")
    for model in (ours, zoo.from_pretrained(tmp_path / "again")):
        for text, shares in zip(TEXTS, model.classify(TEXTS), strict=True):
            expected = {found["label"]: found["score"] for found in pipe([text])[0]}
            assert shares == pytest.approx(expected, abs=1e-5)
            assert list(shares) == list(expected)


def test_pairs_and_truncated_texts_are_those_of_a_pipeline(tmp_path, capsys):
    theirs, tokenizer = saved(tmp_path)
    pipe = transformers.pipeline("text-classification", theirs, tokenizer=tokenizer, top_k=None)
    ours = zoo.from_pretrained(tmp_path)
    pairs = [("w3 w1 w4", "w9 w2"), ("w5", "w1"), ("w7 " * 40, "w8 " * 9)]
    given = [{"text": a, "text_pair": b} for a, b in pairs] + ["w6 " * 50, "w1"]
    cut = {"truncation": True, "max_length": 32}
    for text, read in zip([*pairs, *given[3:]], given, strict=True):
        found = pipe(read, **cut)
        found = found[0] if isinstance(found[0], list) else found
        expected = {one["label"]: one["score"] for one in found}
        (shares,) = ours.classify([text], truncate=True)
        assert shares == pytest.approx(expected, abs=1e-5)
    assert main(["classify", str(tmp_path), "w3 w1 w4\tw9 w2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["probabilities"]
    assert said == pytest.approx(ours.classify(pairs[:1])[0], abs=1e-6)
    for wrong in ([("a",)], [("a", 3)], [("a", "b", "c")], "a", [3]):
        with pytest.raises(EdgewiseError):
            ours.classify(wrong)


def test_a_problem_that_is_none_is_refused(tmp_path):
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"problem_type": "ranking"}))
    with pytest.raises(EdgewiseError, match="problem_type"):
        zoo.from_pretrained(tmp_path).classify(TEXTS)


def pooled(folder, table, *others):
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *others, ("2_Normalize", "Normalize")]
    kind = "sentence_transformers.models"
    listed = [{"idx": k, "path": at, "type": f"{kind}.{n}"} for k, (at, n) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("table", "first"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, True),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, False),
        ({"pooling_mode": "cls"}, True),
        ({"pooling_mode": "mean"}, False),
        (None, False),
    ],
)
def test_embeddings_are_pooled_as_the_folder_says(table, first, tmp_path):
    theirs, tokenizer = saved(tmp_path, kind="BertModel")
    if table is not None:
        pooled(tmp_path, table)
    ours = zoo.from_pretrained(tmp_path)
    ours.save_pretrained(tmp_path / "again")
    for model in (ours, zoo.from_pretrained(tmp_path / "again")):
        for text, found in zip(TEXTS, model.embed(TEXTS), strict=True):
            rows = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            row = rows[0] if first else rows.mean(0)
            torch.testing.assert_close(found, row / row.norm(), atol=1e-5, rtol=1e-4)
    ours.save_pretrained(tmp_path / "again")  # its own files are replaced


@pytest.mark.parametrize(
    ("table", "others", "said"),
    [
        ({"pooling_mode_max_tokens": True}, [], "max_tokens"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, [], "and"),
        ({"pooling_mode_cls_token": False}, [], "no mode"),
        ({"pooling_mode_mean_tokens": True}, [("2_Dense", "Dense")], "Dense"),
    ],
)
def test_other_ways_to_pool_are_refused(table, others, said, tmp_path):
    saved(tmp_path, kind="BertModel")
    pooled(tmp_path, table, *others)
    with pytest.raises(EdgewiseError, match=said):
        zoo.from_pretrained(tmp_path).embed(TEXTS)


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"type": 3}]', "[", '{"a": 1}'])
def test_modules_that_cannot_be_read(text, tmp_path):
    saved(tmp_path, kind="BertModel")
    (tmp_path / "modules.json").write_text(text)
    if text in ("{}", '[{"type": 3}]'):  # no module is named, or one of an unknown kind
        zoo.from_pretrained(tmp_path)
    else:
        with pytest.raises(EdgewiseError, match=r"modules\.json"):
            zoo.from_pretrained(tmp_path)
