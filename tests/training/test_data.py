"""Own data: every format and task, tokenizers learned and read, and what each mistake says."""

import gzip
import json

import pytest

from edgewise import EdgewiseError
from edgewise.training.data.files import FORMATS, read
from edgewise.training.data.labelled import LabelledData
from edgewise.training.data.pairs import PairData
from edgewise.training.data.text import TextData
from edgewise.training.data.tokens import LEARNED
from edgewise.training.tokenizers import subwords

FILMS = [
    {"text": f"a {word} film, no. {i}", "label": label, "score": i}
    for i in range(10)
    for word, label in (("fine", "good"), ("dull", "bad"))
]


def put_json(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def put_list(path, rows):
    path.write_text(json.dumps(rows, indent=1))


def put_csv(path, rows, delimiter=","):
    quoted = [[f'"{value}"' for value in row.values()] for row in rows]
    path.write_text("\n".join(delimiter.join(line) for line in [list(rows[0]), *quoted]) + "\n")


def put_tsv(path, rows):
    put_csv(path, rows, "\t")


def put_parquet(path, rows):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def put_packed(path, rows):
    put_json(path, rows)
    path.write_bytes(gzip.compress(path.read_bytes()))


WRITERS = {
    "films.jsonl": put_json,
    "films.ndjson": put_json,
    "films.json": put_list,
    "films.csv": put_csv,
    "films.tsv": put_tsv,
    "films.parquet": put_parquet,
    "films.jsonl.gz": put_packed,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_the_same_rows(name, tmp_path):
    WRITERS[name](tmp_path / name, FILMS)
    found = read(tmp_path / name)
    assert found.texts("text") == [row["text"] for row in FILMS]
    assert found.column("label") == [row["label"] for row in FILMS]
    corpus = LabelledData(path=name).read(tmp_path)
    assert corpus.labels == ["bad", "good"]
    assert (len(corpus.parts["train"]), len(corpus.parts["validation"])) == (18, 2)


def test_every_suffix_is_tried():
    assert {name.removesuffix(".gz").partition(".")[2] for name in WRITERS} == {
        suffix[1:] for suffix in FORMATS if suffix != ".txt"
    }


@pytest.mark.parametrize("names", [("", "data"), ("glue", "glue")])
def test_files_of_splits_are_found_as_a_hub_folder_has_them(names, tmp_path):
    folder = tmp_path / names[1]
    folder.mkdir()
    put_parquet(folder / "train-00000-of-00002.parquet", FILMS[:10])
    put_parquet(folder / "train-00001-of-00002.parquet", FILMS[10:])
    put_parquet(folder / "validation-00000-of-00001.parquet", FILMS[:4])
    corpus = LabelledData(path=names[0] or ".").read(tmp_path)
    assert {part: len(rows) for part, rows in corpus.parts.items()} == {
        "train": 20,
        "validation": 4,
    }


@pytest.mark.parametrize("splits", [True, False])
def test_a_saved_dataset_has_its_splits_and_the_names_of_its_classes(splits, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"text": [row["text"] for row in FILMS], "label": [1, 0] * 10}
    classes = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features({"text": datasets.Value("string"), "label": classes})
    part = datasets.Dataset.from_dict(rows, features=features)
    saved = datasets.DatasetDict({"train": part, "dev": part.select(range(6))}) if splits else part
    saved.save_to_disk(tmp_path / "saved")
    corpus = LabelledData(path="saved").read(tmp_path)
    assert corpus.labels == ["negative", "positive"]
    assert len(corpus.parts["validation"]) == (6 if splits else 2)
    assert [label for label, _ in corpus.parts["train"]][:2] == [1, 0]
    if splits:
        with pytest.raises(EdgewiseError, match="no split `tset`; the folder has `dev`, `train`"):
            LabelledData(path="saved", test="tset").read(tmp_path)


def test_pairs_of_sentences_are_separated(tmp_path):
    rows = [{"a": "it rains", "b": "it is wet", "same": i % 2} for i in range(10)]
    put_json(tmp_path / "pairs.jsonl", rows)
    section = LabelledData(path="pairs.jsonl", text="a", second="b", label="same", longest=5)
    corpus = section.read(tmp_path)
    label, row = corpus.parts["train"][0]
    assert label in (0, 1)
    assert corpus.tokenizer.decode(row, skip_special_tokens=False) == "it rains <separator> it is"


@pytest.mark.parametrize("columns", [("en", "de"), ("translation", None)])
def test_translations_are_columns(columns, tmp_path):
    pair = {"en": "A dog runs.", "de": "Ein Hund läuft."}
    put_json(tmp_path / "a.jsonl", [pair if columns[1] else {"translation": pair}] * 20)
    corpus = PairData(path="a.jsonl", source="en", target="de", pieces=300).read(tmp_path)
    assert corpus.texts["train"][0] == ("a dog runs.", "ein hund läuft.")
    assert corpus.text(corpus.parts["train"][0][1]) == "ein hund läuft."
    assert "test" not in corpus.parts


@pytest.mark.parametrize("name", ["given.json", "bpe", "byte_bpe", "unigram", "words"])
def test_a_translator_reads_a_text_as_it_read_its_data(name, tmp_path):
    pairs = [{"en": f"A Dog  runs\tNo. {i}", "de": f"Ein Hund {i}"} for i in range(20)]
    put_json(tmp_path / "a.jsonl", pairs)
    subwords("byte_bpe", [repr(pairs).lower()], 300, lower=False).save(str(tmp_path / "given.json"))
    how = {"path": "a.jsonl", "source": "en", "target": "de", "pieces": 300}
    corpus = PairData(**how, tokenizer=name).read(tmp_path)
    wanted = corpus.tokenizer.encode("a dog runs no. 3", add_special_tokens=False).ids
    for text in ("A Dog  runs\tNo. 3", " a dog\u00a0runs no. 3 "):
        assert corpus.tokenizer.encode(text, add_special_tokens=False).ids == wanted
    texts = {source: row for (source, _), (row, _) in zip(
        corpus.texts["train"], corpus.parts["train"], strict=True
    )}  # fmt: skip
    assert texts["a dog runs no. 3"] == wanted


def labelled(tmp_path, labels):
    put_json(tmp_path / "a.jsonl", [{"text": f"t{x}", "label": x} for x in labels * 10])
    return LabelledData(path="a.jsonl").read(tmp_path)


@pytest.mark.parametrize("labels", [["01", "1"], ["+1", "1"], ["٣", "3"], ["9" * 5000, "1"]])
def test_labels_that_are_not_integers_as_printed_are_names(labels, tmp_path):
    corpus = labelled(tmp_path, labels)
    assert corpus.labels == sorted(labels)
    assert {row[1][0]: row[0] for row in corpus.parts["train"]}.keys() == {2, 3}


def numbered(path, names, rows):
    import datasets

    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)}
    made = datasets.Dataset.from_list(rows, features=datasets.Features(kinds))
    made.to_parquet(path)


def test_a_number_of_a_class_is_the_name_that_its_own_file_has(tmp_path):
    rows = [{"text": "t0", "label": 0}, {"text": "t1", "label": 1}] * 5
    numbered(tmp_path / "train.parquet", ["no", "yes"], rows)
    numbered(tmp_path / "validation.parquet", ["yes", "no"], rows)
    corpus = LabelledData().read(tmp_path)
    assert corpus.labels == ["no", "yes"]
    assert [label for label, _ in corpus.parts["train"]][:2] == [0, 1]
    assert [label for label, _ in corpus.parts["validation"]][:2] == [1, 0]
    (tmp_path / "validation.parquet").rename(tmp_path / "train-2.parquet")
    with pytest.raises(EdgewiseError, match="numbers the classes of `label` otherwise than"):
        LabelledData().read(tmp_path)


TEXT = "One dog runs, two dogs sleep.\nNo cat is seen — not one!\n" * 30


@pytest.mark.parametrize("kind", LEARNED)
def test_every_tokenizer_is_learned_and_read_again(kind, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    section = TextData(path="text.txt", context=8, tokenizer=kind, pieces=300)
    corpus = section.read(tmp_path)
    text = corpus.tokenizer.decode(corpus.parts["train"][:40].tolist())
    lossy = kind in ("words", "wordpiece", "unigram", "bpe")
    assert (" ".join(text.split())[:20] == TEXT[:20]) if lossy else TEXT.startswith(text)
    assert section.read(tmp_path).tokenizer.to_str() == corpus.tokenizer.to_str()
    (tmp_path / "tokenizer.json").write_text(corpus.tokenizer.to_str())
    again = section.read(tmp_path, tokenizer=corpus.tokenizer)
    assert again.fingerprint == corpus.fingerprint
    if kind != "characters":
        for name in ("tokenizer.json", "."):  # a file, and the folder that has it
            found = TextData(path="text.txt", context=8, tokenizer=name).read(tmp_path)
            assert found.parts["train"].tolist() == corpus.parts["train"].tolist()


def test_special_tokens_of_a_folder_have_the_names_of_its_configuration(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"oh": 0, "ΩΩ": 1, "no": 2}, unk_token="oh"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": {"content": "ΩΩ"}, "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    put_json(tmp_path / "a.jsonl", [{"text": "no no"}] * 20)
    corpus = TextData(path="a.jsonl", context=2, tokenizer=".").read(tmp_path)
    assert corpus.parts["train"][:6].tolist() == [2, 2, 1] * 2
    assert corpus.words == 3


def write(name, data):
    def put(folder):
        path = folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())

    return put


GOOD = '{"text": "fine", "label": 1}\n{"text": "dull", "label": 0}\n' * 10
WRONG = {
    "a column that is missing": (
        "a.jsonl",
        GOOD.replace("label", "lable"),
        ["no column `label`; there are `text`, `lable`", "did you mean `lable`"],
    ),
    "a column of numbers": ("a.jsonl", GOOD.replace('"dull"', "3"), ["row 2 is 3, not a string"]),
    "a text that is null": ("a.jsonl", GOOD.replace('"dull"', "null"), ["row 2 is null"]),
    "half a character": ("a.jsonl", GOOD.replace("dull", "\\ud800"), ["lone surrogate"]),
    "a label that is a float": ("a.jsonl", GOOD.replace("0}", "0.5}"), ["is 0.5, not an integer"]),
    "one label only": ("a.jsonl", GOOD.replace("0}", "1}"), ["all rows have class 1"]),
    "no JSON": ("a.jsonl", GOOD + '{"text": "oh",\n', ["line 21 is not JSON", "a.jsonl:21:"]),
    "a list on a line": ("a.jsonl", GOOD + "[1]\n", ["line 21 is [1], not an object"]),
    "no JSON in a list": ("a.json", '[{"text": 1},\n{]', ["line 2 is not JSON"]),
    "nothing": ("a.jsonl", "", ["no rows"]),
    "a header alone": ("a.csv", "text,label\n", ["no rows"]),
    "a row that is short": (
        "a.csv",
        "text,label\nfine,1\ndull\n",
        ["line 3 has 1 fields", "has 2"],
    ),
    "a quote that does not end": ("a.csv", 'text,label\n"fine,1\n', ["is not CSV"]),
    "a header twice": ("a.csv", "text,text\na,b\n", ["one name"]),
    "Latin 1": (
        "a.csv",
        "text,label\nschön,1\n".encode("latin1"),
        ["byte 0xf6 in line 2", "iconv"],
    ),
    "UTF-16": ("a.csv", "text,label\nfine,1\n".encode("utf-16"), ["iconv -f UTF-16"]),
    "semicolons": ("a.csv", "text;label\nfine;1\n", ["one column, `text;label`", "by commas"]),
    "no Parquet": ("a.parquet", "text", ["not a Parquet file"]),
    "no gzip": ("a.csv.gz", "text", ["gzip"]),
    "a split that is missing": (
        "train.jsonl",
        GOOD,
        ["no split `dev`; the folder has `train.jsonl`"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_the_data_is_named(case, tmp_path):
    name, data, said = WRONG[case]
    write(name, data)(tmp_path)
    section = LabelledData(path=name) if "split" not in case else LabelledData(validation="dev")
    with pytest.raises(EdgewiseError) as caught:
        section.read(tmp_path)
    assert caught.value.code == "bad-data"
    assert all(part in str(caught.value) for part in said)
    assert caught.value.help


def test_lines_that_end_as_on_windows(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    (tmp_path / "b.txt").write_bytes(TEXT.replace("\n", "\r\n").encode())
    first, second = (
        TextData(path=name, context=4, tokenizer="characters").read(tmp_path)
        for name in ("a.txt", "b.txt")
    )
    assert first.fingerprint == second.fingerprint
    assert second.tokenizer.token_to_id("\r") is None


def test_labels_of_other_parts_must_be_known(tmp_path):
    write("train.jsonl", GOOD)(tmp_path)
    write("test.jsonl", GOOD.replace("0}", "-1}"))(tmp_path)
    with pytest.raises(EdgewiseError, match=r"row 2 has class -1"):
        LabelledData().read(tmp_path)


def test_a_split_has_one_format(tmp_path):
    write("train.jsonl", GOOD)(tmp_path)
    write("train.csv", "text,label\n")(tmp_path)
    with pytest.raises(EdgewiseError, match="several formats"):
        LabelledData().read(tmp_path)


@pytest.mark.parametrize("kind", ["bep", "a.txt"])
def test_a_tokenizer_that_is_none(kind, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    with pytest.raises(EdgewiseError, match=r"no tokenizer `bep`|not a tokenizer file"):
        TextData(path="a.txt", context=4, tokenizer=kind).read(tmp_path)


def test_sentences_that_are_too_long_are_truncated_outside_training(tmp_path):
    rows = [{"en": "a b", "de": "c d"}] * 20
    put_json(tmp_path / "train.jsonl", rows)
    put_json(tmp_path / "val.jsonl", [{"en": "a b " * 50, "de": "c d " * 50}])
    section = PairData(source="en", target="de", longest=8, pieces=300)
    (batch,) = section.read(tmp_path).validation(4)
    assert batch["source"].shape == batch["next"].shape == (1, 16)
