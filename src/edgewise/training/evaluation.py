"""How good a model is: on the data of its recipe, or on a file of texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from edgewise.data.trees import DependencyTree, sentences
from edgewise.errors import caller
from edgewise.inputs.kinds import numbers
from edgewise.training import recipe as recipes
from edgewise.training.data.files import LINES, Columns, bad, read
from edgewise.training.data.labelled import label_names
from edgewise.training.data.pairs import PairData
from edgewise.training.data.treebank import universal
from edgewise.training.errors import WrongTask
from edgewise.training.objectives.objective import Average
from edgewise.training.objectives.texts import bleu
from edgewise.training.runs.folder import RECIPE, data_folder
from edgewise.training.runs.model_files import bad as bad_run
from edgewise.training.runs.run import Run
from edgewise.zoo.pretrained.model import SINGLE, Pretrained

BATCH = 32
LONGEST = 1024  # tokens of a window, for models without a limit
COLUMNS = {"text": "text", "second": "", "label": "label", "source": "source", "target": "target"}
Measures = dict[str, float]


def on_recipe(run: Run, folder: Path, data: Path | None, part: str) -> Measures:
    """What the objective of a run measures on the validation or test part of its data."""
    if not (folder / RECIPE).is_file():
        raise bad_run(folder, f"there is no `{RECIPE}` that names the data", "give `--file FILE`")
    recipe = recipes.load(folder / RECIPE)
    where = data_folder(folder / RECIPE, data)
    corpus = recipe.data.read(where, run.tokenizer)
    if run.tokenizer is not None:
        run.tokenizer.no_truncation()
    if part not in corpus.parts:
        there = ", ".join(f"`{name}`" for name in corpus.parts)
        raise bad(f"there is no {part} part", where, f"there are {there}: `--part`")
    if list(getattr(corpus, "labels", run.labels)) != run.labels:
        what = f"the data has the classes {corpus.labels}, the model {run.labels}"
        raise bad(what, where, "give the data of the recipe, or `--file FILE`")
    found = Average()
    with torch.inference_mode():
        for read in corpus.validation(BATCH, part):
            batch = recipe.objective.drawn(read, corpus, 0)
            moved = getattr(corpus, "moved", batch)
            batch = {n: t.to(run.device) if n in moved else t for n, t in batch.items()}
            recipe.objective.measure(run.module, batch, found)
    means = found.means()
    if run.task == "generate":
        means["perplexity"] = math.exp(means["loss"])
    if run.task == "translate":
        means["bleu"] = recipe.objective.score(run.module, corpus, run.device, part, run.penalty)
    return means


def on_file(model: Pretrained, file: Path, folder: Path) -> Measures:
    """Perplexity, accuracy or BLEU on all texts of a file; UAS and LAS on a file in CoNLL-U."""
    if not file.exists():
        raise bad("there is no such file", file, "check `--file`")
    names = dict(COLUMNS)
    data: Any = None
    if isinstance(model, Run) and (folder / RECIPE).is_file():
        data = recipes.load(folder / RECIPE).data
        names |= {name: getattr(data, name) for name in COLUMNS if hasattr(data, name)}
    task = task_of(model)
    if task == "parse" and isinstance(model, Run):
        return _attachment(model, sentences(file))
    columns = read(file)
    match task:
        case "generate":
            return _perplexity(model, columns, names)
        case "classify":
            return _accuracy(model, columns, names)
        case "translate":
            if isinstance(data, PairData):
                rows = data.sentences(columns)
            else:
                sides = (columns.texts(names[side]) for side in ("source", "target"))
                rows = list(zip(*sides, strict=True))
            written = model.translate([source for source, _ in rows], truncate=True)
            return {"bleu": bleu(written, [target for _, target in rows])}
    raise WrongTask(
        f"a model that gives {task} has no measure on a file of texts",
        caller(),
        "evaluate it on the data of its recipe: `--data FOLDER`",
    )


def task_of(model: Pretrained) -> str:
    """The verb that fits a model."""
    if isinstance(model, Run):
        return model.task
    reads = set(model.model.inputs)
    if {"source", "target"} <= reads:
        return "translate"
    fits = {"logits": "generate", "classes": "classify"}
    return fits.get(model.output, "embed")


def _perplexity(model: Pretrained, columns: Columns, names: dict[str, str]) -> Measures:
    """exp of the mean of -log p(token | tokens before it in its window)."""
    texts = columns.texts(LINES if LINES in columns else names["text"])
    documents = ["\n".join(texts)] if LINES in columns else texts
    width, found = min(model.config.length, LONGEST), Average()
    for text in documents:
        tokens = _tokens(model, text).to(model.device)
        windows = [tokens[at : at + width + 1] for at in range(0, len(tokens) - 1, width)]
        for window in windows:
            with torch.inference_mode():
                logits: Any = model.model(token=numbers(window[None, :-1]))
                found.add("loss", cross_entropy(logits[0].double(), window[1:]), len(window) - 1)
    means = found.means()
    if not means:
        raise bad("the file has fewer than two tokens", columns.path, "give more text")
    return means | {"perplexity": math.exp(means["loss"])}


def _tokens(model: Pretrained, text: str) -> torch.Tensor:
    if isinstance(model, Run):
        return torch.tensor(model.rows([text])[0] if text else [])
    ids = model.tokenizer.encode(text).ids if model.tokenizer is not None else []
    return torch.tensor(ids, dtype=torch.int64)


def _accuracy(model: Pretrained, columns: Columns, names: dict[str, str]) -> Measures:
    if LINES in columns:
        pairs = [line.strip().partition(" ")[::2] for line in columns.texts(LINES) if line.strip()]
        labels, texts = [a for a, _ in pairs], [b for _, b in pairs]
    else:
        labels = label_names(columns, names["label"])
        texts = columns.texts(names["text"])
    inputs: list[Any] = list(texts)
    if names["second"]:
        inputs = list(zip(texts, columns.texts(names["second"]), strict=True))
    if not isinstance(model, Run) and model.problem != SINGLE:
        what = f"the model gives a text no single class: its problem is {model.problem}"
        raise bad(what, columns.path, "use `edgewise classify`, which prints its scores")
    shares = model.classify(inputs, truncate=True)
    known = _labels(model)
    for at, label in enumerate(labels, start=1):
        if label not in known:
            what = f"row {at:,} has class {label!r:.60}, which the model does not know"
            there = ", ".join(dict.fromkeys(known.values()))
            raise bad(what, columns.path, f"its classes are {there}"[:200])
    found = Average()
    for label, row in zip(labels, shares, strict=True):
        share = torch.tensor(max(row[known[label]], 1e-300), dtype=torch.float64)
        found.add("loss", -share.log(), 1)
        found.add("accuracy", torch.tensor(float(next(iter(row)) == known[label])), 1)
    return found.means()


def _attachment(model: Run, gold: list[DependencyTree]) -> Measures:
    """The shares of words with the right head, and with the right relation to it."""
    found = Average()
    for wanted, tree in zip(gold, model.parse(gold), strict=True):
        words = list(zip(wanted.heads, wanted.relations, tree.heads, tree.relations, strict=True))
        right = torch.tensor([a == b for a, _, b, _ in words])
        kinds = torch.tensor([universal(a) == universal(b) for _, a, _, b in words])
        exact = torch.tensor([a == b for _, a, _, b in words])
        found.add("uas", right.double().mean(), len(words))
        found.add("las", (right & kinds).double().mean(), len(words))
        found.add("las with subtypes", (right & exact).double().mean(), len(words))
    return found.means()


def _labels(model: Pretrained) -> dict[str, str]:
    """What a file may call a class → its label: the label itself, or its number."""
    labels = model.labels if isinstance(model, Run) else model.class_names
    return {str(k): str(v) for k, v in enumerate(labels)} | {str(v): str(v) for v in labels}
