"""The demo: train one attention program, then evaluate it on five graphs."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.demo import checkpoint, figure, long_text, screen
from edgewise.demo.model import (
    BATCH,
    GRAPHS,
    STEPS,
    DemoGraph,
    accuracy,
    attention,
    compile_model,
    names,
    positions,
    tokens,
    train,
)
from edgewise.demo.sentences import LONGEST, STORY, corpus
from edgewise.graphs import from_edges
from edgewise.language import R, V

QUERY = STORY.words.index("it")
PICTURE = Path("demo/attention.png")


def main() -> int:
    """Run the demo; 0 if all of its claims hold."""
    torch.set_num_threads(1)  # the tensors of a sentence are too small for threads
    on = screen.console()
    on.print(screen.title(str(STORY)))
    on.print("One attention program. Word I of sentence S attends to word J with a weight, and its")
    on.print("output is the weighted sum of the values.\n")
    on.print(screen.rules(attention()))
    model = compile_model()
    on.print(
        "\n`program.compile(R.attention)` is a torch module. It is trained on "
        f"{STEPS * BATCH} short\nsentences: which word does each word belong to? An adjective to "
        "its noun, a pronoun to its\nantecedent. The sentence above is not among them.\n"
    )
    for _ in screen.progress(train(model), STEPS, on):
        pass
    unseen = corpus(STEPS * BATCH + 30, seed=0)[-30:]
    score = accuracy(model, unseen)
    weights = {name: model.weight(name).detach() for name in attention().weights()}
    on.print(f"30 unseen sentences: {score:.1%} of the words attend most to the right one\n")
    on.print("The same rules and the same weights on five graphs; only a condition changes:\n")
    views = [view(graph, weights) for graph in GRAPHS]
    for graph, seen in zip(GRAPHS, views, strict=True):
        shares = {STORY.words[j]: w for (i, j), w in seen.weights.items() if i == QUERY}
        size = len(STORY.words)
        pairs = from_edges(list(seen.weights), shape=(size, size))
        on.print(screen.graph_panel(graph, pairs.stats(size), shares))
    on.print(
        "In the tree “music” is three arcs from “it”: outside the receptive field of one layer.\n"
    )
    on.print(f"figure: {figure.save(PICTURE, STORY.words, views, QUERY)}\n")
    on.print(f"The same rules once more, on a text of {long_text.LENGTH:,} words:\n")
    far = long_text.step(model)
    on.print(screen.long_panel(far))
    on.print(f"And a pretrained model, its weights in rules: {checkpoint.NAME}.\n")
    with on.status(f"{checkpoint.NAME}: 84 MB, downloaded once"):
        answer = checkpoint.run()
    on.print(
        screen.checkpoint_panel(answer)
        if isinstance(answer, checkpoint.CheckpointResult)
        else _unavailable(answer)
    )
    return checked(score, views, far, answer, on)


def _unavailable(reason: str) -> str:
    return f"[yellow]not available[/]: {reason}\nThe rest of the demo does not need it.\n"


def background(sentences: list[Any]) -> list[Any]:
    return tokens(sentences) + positions(LONGEST) + names()


def view(graph: DemoGraph, weights: dict[str, Tensor]) -> figure.GraphView:
    """The attention weights of the story on one graph."""
    program = attention(*graph.condition)
    facts = [*background([STORY]), *graph.facts]
    solution = program.solve(facts, weights=weights)
    found = {
        (int(atom.terms[1]), int(atom.terms[2])): value.item()
        for atom, value in solution[R.weights(0, V.I, V.J)].items()
    }
    assert solution.computed["weights"] == len(found)  # a score for these pairs and no other
    shown = "+ " + ", ".join(map(repr, graph.condition)) if graph.condition else "the two rules"
    return figure.GraphView(graph.name, shown, found)


def checked(
    score: float,
    views: list[figure.GraphView],
    far: long_text.LongTextRun,
    answer: checkpoint.CheckpointResult | str,
    on: Any,
) -> int:
    """Print the claims of the demo and whether they hold."""
    music = STORY.words.index("music")
    complete, causal, five, tree, bigbird = (seen.weights for seen in views)
    claims = {
        "at least 95% of unseen words attend most to the right one": score >= 0.95,
        "“it” attends to “music” by more than 80% on all graphs but the tree": all(
            seen[QUERY, music] > 0.8 for seen in (complete, causal, five, bigbird)
        ),
        "on the tree “it” does not attend to “music”": (QUERY, music) not in tree,
        "81, 45, 39, 25 and 58 pairs were computed": [len(v.weights) for v in views]
        == [81, 45, 39, 25, 58],
        f"{long_text.LENGTH:,} words in a training step of less than 4 GiB": far.finite
        and far.peak_gib < 4,
    }
    if isinstance(answer, checkpoint.CheckpointResult):
        count = len(checkpoint.QUERIES)
        claims[f"{count} queries find the line of the same meaning"] = answer.hits == count
    for claim, holds in claims.items():
        on.print(f"[green]✓[/] {claim}" if holds else f"[red]✗[/] {claim}")
    on.print("\nnext: README.md introduces the language, examples/ has short programs")
    return 0 if all(claims.values()) else 1
