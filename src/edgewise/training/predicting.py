"""What a run on graphs or triples predicts for its data, and what a prediction follows from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from edgewise.errors import Span
from edgewise.language.nodes import Atom
from edgewise.training import recipe as recipes
from edgewise.training.data.algorithms import AlgorithmCorpus
from edgewise.training.data.files import bad
from edgewise.training.data.graph_corpus import GRAPH
from edgewise.training.data.links import LinkCorpus
from edgewise.training.data.triples import TripleCorpus
from edgewise.training.errors import WrongTask
from edgewise.training.objectives.triples import ranks, without_others
from edgewise.training.runs.folder import RECIPE, data_folder
from edgewise.training.runs.model_files import bad as bad_run
from edgewise.training.runs.run import Run, read_run

if TYPE_CHECKING:
    from edgewise.reference.why import Why

BATCH = 256
MOST_ANSWERS = 5
PAIRS = 20_000  # that are scored together
Prediction = dict[str, Any]


def predict(
    run: str | Path, *, data: str | Path | None = None, part: str = "test", device: str = "cpu"
) -> Iterator[Prediction]:
    """The prediction for every example of a part, or of all parts: `part="all"`.

    Each is a dictionary with the number of the `example`, its `name` in the data, and its `label`
    and `probabilities`, or `values`; of triples, the query, its answer with the filtered rank, and
    the best answers. A run on links suggests new ones with `part="new"`: pairs of nodes without an
    edge that share a neighbour, the likeliest first.

    >>> from edgewise import training
    >>> _ = list(training.train(training.load("graph.toml"), "run"))
    >>> sorted(next(iter(predict("run", part="all"))))
    ['example', 'label', 'name', 'probabilities']
    """
    model, corpus = _opened(Path(run), data)
    if part == "new" and isinstance(corpus, LinkCorpus):
        yield from _suggested(model.to(device), corpus)
        return
    if part != "all" and part not in corpus.parts:
        there = ", ".join(f"`{name}`" for name in corpus.parts)
        raise bad(f"there is no {part} part", Path(run), f"there are {there}, or `all`")
    several = model.table["objective"]["kind"] == "labels"
    model = model.to(device)
    every = torch.arange(corpus.examples)
    for chosen in (every if part == "all" else corpus.parts[part]).split(BATCH):
        batch = corpus.of_examples(chosen)
        moved = {n: t.to(device) if n in corpus.moved else t for n, t in batch.items()}
        if isinstance(corpus, AlgorithmCorpus):
            yield from model.module.predictions(moved)
            continue
        with torch.inference_mode():
            logits = model.module(moved).float().cpu()
        if isinstance(corpus, TripleCorpus):
            yield from _answers(corpus, batch, logits)
            continue
        for example, row in zip(chosen.tolist(), logits, strict=True):
            found = _shown(row, model.labels, several)
            if isinstance(corpus, LinkCorpus):
                found = {"probability": float(row.sigmoid())}
            yield {"example": example, "name": corpus.name_of(example), **found}


def _suggested(model: Run, corpus: LinkCorpus) -> Iterator[Prediction]:
    pairs, found = corpus.new_pairs(), []
    for some in pairs.split(PAIRS, 1):
        with torch.inference_mode():
            found.append(model.module(corpus.of_pairs(some))[:, 0].float().cpu().sigmoid())
    chances = torch.cat(found) if found else torch.zeros(0)
    for at in chances.argsort(descending=True, stable=True).tolist():
        ends = pairs[:, at].tolist()
        named = [corpus.names[n] if corpus.names else str(n) for n in ends]
        yield {"example": ends, "name": named, "probability": float(chances[at])}


def why(run: str | Path, atom: Atom, *, data: str | Path | None = None, graph: int = 0) -> Why:
    """The groundings behind an atom, such as `R.logits(3)`; of many graphs, in graph `graph`.

    A node of one graph is a number, or its name in the data: `R.logits("ann")`. Of triples, `graph`
    is the number of the query; of algorithms, of a graph at a drawn step.

    >>> from edgewise import R, training
    >>> _ = list(training.train(training.load("graph.toml"), "run"))
    >>> str(why("run", R.logits(3))).splitlines()[0][:13]
    'R.logits(3) ='
    """
    model, corpus = _opened(
        Path(run), data, f'of a text: `edgewise why {run} "..." --without token:0`'
    )
    if isinstance(corpus, TripleCorpus | AlgorithmCorpus):
        if not 0 <= graph < corpus.examples:
            what = f"there is no example {graph}: there are {corpus.examples:,}"
            raise bad(what, Path(run), "number them from 0")
        batch = corpus.of_examples(torch.tensor([graph]))
        grounded = getattr(model.module, "grounded", None)  # of models that read the graph
        data = None if grounded is None else grounded(batch)
        answer: Why = model.model.why(atom, data, **model.module.inputs(batch))
        return answer
    if corpus.level != GRAPH:
        atom = _numbered(atom, corpus.names)
    if not 0 <= graph < max(len(corpus.graphs), 1):
        what = f"there is no graph {graph}: there are {len(corpus.graphs):,}"
        raise bad(what, Path(run), "number them from 0")
    chosen = torch.tensor([graph]) if len(corpus.graphs) > 1 else corpus.parts["train"]
    found: Why = model.model.why(atom, model.module.grounded(corpus.of_examples(chosen)))
    return found


def _answers(corpus: TripleCorpus, batch: Any, scores: torch.Tensor) -> Iterator[Prediction]:
    """Queries with the rank of their answer, and the best answers with their probabilities."""
    rank = ranks(without_others(scores, batch["tail"], batch["known"]), batch["tail"])
    shares, best = scores.softmax(1).topk(min(MOST_ANSWERS, scores.shape[1]))
    for at, (example, head, relation, tail) in enumerate(
        zip(*(batch[n].tolist() for n in ("example", "head", "relation", "tail")), strict=True)
    ):
        names = [corpus.labels[entity] for entity in best[at].tolist()]
        yield {
            "example": example,
            "head": corpus.labels[head],
            "relation": corpus.relation_name(relation),
            "answer": corpus.labels[tail],
            "rank": rank[at].item(),
            "best": dict(zip(names, shares[at].tolist(), strict=True)),
        }


def _numbered(atom: Atom, names: Sequence[str]) -> Atom:
    """The atom with the numbers of nodes in place of their names."""
    known = {name: at for at, name in enumerate(names)}

    terms = [known.get(t, t) if isinstance(t, str) else t for t in atom.terms]
    return replace(atom, terms=tuple(terms))


def _shown(row: torch.Tensor, labels: list[str], several: bool) -> Prediction:
    if not labels:
        return {"values": row.tolist()}
    shares = dict(zip(labels, (row.sigmoid() if several else row.softmax(0)).tolist(), strict=True))
    best = [name for name, share in shares.items() if share > 0.5]
    return {"label": best if several else max(shares, key=shares.get), "probabilities": shares}  # type: ignore[arg-type]


def _opened(folder: Path, data: str | Path | None, instead: str = "") -> tuple[Run, Any]:
    """The model of a run, and the data of its recipe; what to do `instead` if it reads texts."""
    run = read_run(folder)
    if run.task != "predict":
        raise WrongTask(
            f"the run is to {run.task}, not to predict on graphs",
            Span.of("<run>", folder),
            instead or f"use `edgewise {run.task}`",
        )
    if not (folder / RECIPE).is_file():
        raise bad_run(folder, f"there is no `{RECIPE}` that names the data", "copy it too")
    recipe = recipes.load(folder / RECIPE)
    corpus = recipe.data.read(data_folder(folder / RECIPE, data))
    if list(corpus.labels) != run.labels:
        what = f"the data has the classes {list(corpus.labels)}, the model {run.labels}"
        raise bad(what[:200], folder, "give the data of the recipe: `--data FOLDER`")
    return run, corpus
