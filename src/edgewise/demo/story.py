"""The story: train one attention program, then ask it on five graphs."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.demo import long, picture, real, screen
from edgewise.demo.model import GRAPHS, Graph, attention, names, places, tokens
from edgewise.demo.sentences import LONGEST, STORY, corpus
from edgewise.demo.training import BATCH, STEPS, compiled, right, train
from edgewise.graphs import from_edges
from edgewise.language import R, V

ASKED = STORY.words.index("it")
PICTURE = Path("demo/attention.png")


def main() -> int:
    """Tell the story; 0 if everything it claims is so."""
    torch.set_num_threads(1)  # the tensors of a sentence are too small to share
    on = screen.console()
    on.print(screen.title(str(STORY)))
    on.print("One attention program. Word I of sentence S hears word J with a weight, and takes")
    on.print("from each word that it hears that share of it.\n")
    on.print(screen.rules(attention()))
    model = compiled()
    on.print(
        "\n`program.compile(R.attention)` is a torch module. It learns for a moment from "
        f"{STEPS * BATCH} small\nsentences: which word does each word belong to? An adjective to "
        "its noun, a pronoun to what it\nstands for. The sentence above is not among them.\n"
    )
    for _ in screen.progress(train(model), STEPS, on):
        pass
    unseen = corpus(STEPS * BATCH + 30, seed=0)[-30:]
    score = right(model, unseen)
    weights = {name: model.weight(name).detach() for name in attention().weights()}
    on.print(f"30 sentences it has not seen: {score:.1%} of the words find theirs\n")
    on.print("The same rules and the same weights on five graphs; only a condition changes:\n")
    views = [view(graph, weights) for graph in GRAPHS]
    for graph, seen in zip(GRAPHS, views, strict=True):
        shares = {STORY.words[j]: w for (i, j), w in seen.weights.items() if i == ASKED}
        size = len(STORY.words)
        pairs = from_edges(list(seen.weights), shape=(size, size))
        on.print(screen.graph_panel(graph, pairs.stats(size), shares))
    on.print("In the tree “music” is three steps from “it”: out of reach of one layer.\n")
    on.print(f"picture: {picture.save(PICTURE, STORY.words, views, ASKED)}\n")
    on.print(f"The same rules once more, on a text of {long.LENGTH:,} words:\n")
    far = long.step(model)
    on.print(screen.long_panel(far))
    on.print(f"And a model that others have trained: {real.NAME}, its weights in rules.\n")
    with on.status(f"{real.NAME}: fetched once, 84 MB"):
        answer = real.ask()
    on.print(screen.real_panel(answer) if isinstance(answer, real.Real) else _without(answer))
    return checked(score, views, far, answer, on)


def _without(reason: str) -> str:
    return f"[yellow]not here[/]: {reason}\nThe rest of the story does not need it.\n"


def background(sentences: list[Any]) -> list[Any]:
    return tokens(sentences) + places(LONGEST) + names()


def view(graph: Graph, weights: dict[str, Tensor]) -> picture.View:
    """The weights of the story on one graph."""
    program = attention(*graph.condition)
    facts = [*background([STORY]), *graph.facts]
    solution = program.solve(facts, weights=weights)
    found = {
        (int(atom.terms[1]), int(atom.terms[2])): value.item()
        for atom, value in solution[R.weights(0, V.I, V.J)].items()
    }
    assert solution.computed["weights"] == len(found)  # a score for these pairs and no other
    shown = "+ " + ", ".join(map(repr, graph.condition)) if graph.condition else "the two rules"
    return picture.View(graph.name, shown, found)


def checked(
    score: float, views: list[picture.View], far: long.Long, answer: real.Real | str, on: Any
) -> int:
    """What the demo claims, and whether it is so."""
    music = STORY.words.index("music")
    complete, causal, five, tree, bigbird = (seen.weights for seen in views)
    claims = {
        "at least 95% of unseen words find theirs": score >= 0.95,
        "“it” gives “music” more than 80% on all graphs but the tree": all(
            seen[ASKED, music] > 0.8 for seen in (complete, causal, five, bigbird)
        ),
        "on the tree “it” cannot hear “music”": (ASKED, music) not in tree,
        "81, 45, 39, 25 and 58 pairs were computed": [len(v.weights) for v in views]
        == [81, 45, 39, 25, 58],
        f"{long.LENGTH:,} words trained in less than 4 GiB": far.finite and far.peak_gib < 4,
    }
    if isinstance(answer, real.Real):
        count = len(real.QUERIES)
        claims[f"{count} questions find the lines that mean the same"] = answer.hits == count
    for claim, holds in claims.items():
        on.print(f"[green]✓[/] {claim}" if holds else f"[red]✗[/] {claim}")
    on.print("\nnext: README.md shows the language in five minutes, examples/ in short programs")
    return 0 if all(claims.values()) else 1
