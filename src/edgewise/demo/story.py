"""The demo: train one attention program, then evaluate it on five graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text
from torch import Tensor

from edgewise.demo import checkpoint
from edgewise.demo.model import (
    BATCH,
    GRAPHS,
    LENGTH,
    LONGEST,
    RADIUS,
    SAME_SPEAKER,
    STEPS,
    STORY,
    DemoGraph,
    LongTextRun,
    accuracy,
    attention,
    compile_model,
    corpus,
    long_step,
    names,
    positions,
    speakers,
    tokens,
    train,
)
from edgewise.graphs import from_edges
from edgewise.language import Program, R, V
from edgewise.measures import Stats
from edgewise.viz.attention_map import attention as draw_attention

QUERY = STORY.words.index("it")
PICTURE = Path("demo/attention.png")


def main() -> int:
    """Run the demo; 0 if all of its claims hold."""
    torch.set_num_threads(1)  # the tensors of a sentence are too small for threads
    on = console()
    on.print(title(str(STORY)))
    on.print("One attention program. Word I of sentence S attends to word J with a weight, and its")
    on.print("output is the weighted sum of the values.\n")
    on.print(rules(attention()))
    model = compile_model()
    on.print(
        "\n`program.compile(R.attention)` is a torch module. It is trained on "
        f"{STEPS * BATCH} short\nsentences: which word does each word belong to? An adjective to "
        "its noun, a pronoun to its\nantecedent. The sentence above is not among them.\n"
    )
    for _ in progress(train(model), STEPS, on):
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
        on.print(graph_panel(graph, pairs.stats(size), shares))
    on.print(
        "In the tree “music” is three arcs from “it”: outside the receptive field of one layer.\n"
    )
    on.print(f"figure: {save_figure(PICTURE, STORY.words, views, QUERY)}\n")
    on.print(f"The same rules once more, on a text of {LENGTH:,} words:\n")
    far = long_step(model)
    on.print(long_panel(far))
    on.print("One more atom over data: a word attends to words of its own speaker.\n")
    spoken = long_step(model, condition=SAME_SPEAKER, more=speakers(LENGTH))
    on.print(speaker_panel(far, spoken))
    on.print(f"And a pretrained model, its weights in rules: {checkpoint.NAME}.\n")
    with on.status(f"{checkpoint.NAME}: 84 MB, downloaded once"):
        answer = checkpoint.run()
    on.print(
        checkpoint_panel(answer)
        if isinstance(answer, checkpoint.CheckpointResult)
        else _unavailable(answer)
    )
    return checked(score, views, (far, spoken), answer, on)


def _unavailable(reason: str) -> str:
    return f"[yellow]not available[/]: {reason}\nThe rest of the demo does not need it.\n"


def background(sentences: list[Any]) -> list[Any]:
    return tokens(sentences) + positions(LONGEST) + names()


def view(graph: DemoGraph, weights: dict[str, Tensor]) -> GraphView:
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
    return GraphView(graph.name, shown, found)


def checked(
    score: float,
    views: list[GraphView],
    long: tuple[LongTextRun, LongTextRun],
    answer: checkpoint.CheckpointResult | str,
    on: Any,
) -> int:
    """Print the claims of the demo and whether they hold."""
    far, spoken = long
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
        f"{LENGTH:,} words in a training step of less than 4 GiB": far.finite and far.peak_gib < 4,
        "one more atom over data: fewer pairs, in a step of at most twice the time": (
            spoken.finite and spoken.pairs < far.pairs and spoken.step_s < 2 * far.step_s
        ),
    }
    if isinstance(answer, checkpoint.CheckpointResult):
        count = len(checkpoint.QUERIES)
        claims[f"{count} queries find the line of the same meaning"] = answer.hits == count
    for claim, holds in claims.items():
        on.print(f"[green]✓[/] {claim}" if holds else f"[red]✗[/] {claim}")
    on.print("\nnext: README.md introduces the language, examples/ has short programs")
    return 0 if all(claims.values()) else 1


@dataclass(frozen=True)
class GraphView:
    """A graph: its name, its condition as code, and the attention weight of every pair."""

    name: str
    condition: str
    weights: Mapping[tuple[int, int], float]


def save_figure(path: Path, words: Sequence[str], views: Sequence[GraphView], query: int) -> Path:
    """Draw the views side by side: the matrix above, the attention of the word `query` below."""
    weights = {view.name: view.weights for view in views}
    notes = {view.name: view.condition for view in views}
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_attention(weights, words, query=query, notes=notes).savefig(path)
    return path


WIDTH = 96
BAR = 40


def console() -> Console:
    plain = Console()
    return plain if plain.is_terminal else Console(width=WIDTH)


def title(words: str) -> Panel:
    return Panel(Text(words, style="bold", justify="center"), subtitle="what is “it”?", width=WIDTH)


def rules(program: Program) -> Text:
    """The program's rules, one to a line where it fits."""
    lines = [_folded(repr(statement)) for statement in program.statements]
    text = Text("\n".join(lines))
    text.highlight_regex(r"\b[RFWV]\.\w+", "cyan")
    return text


def _folded(line: str) -> str:
    return line if len(line) < 80 else line.replace(" | [", "\n    | [")


def atoms(graph: DemoGraph) -> Text:
    """The condition that a graph adds to the body of `weights`."""
    if not graph.condition:
        return Text("nothing: this is the program above", style="dim")
    shown = ", ".join(map(repr, graph.condition))
    return Text.assemble(("+ ", "bold green"), (shown, "bold black on yellow"))


def bars(shares: Mapping[str, float], count: int = 4) -> Text:
    """A bar for each of the words with the largest shares."""
    top = sorted(shares.items(), key=lambda item: -item[1])[:count]
    text = Text()
    for word, share in top:
        text.append(f"{word:>10} ", "bold" if share > 0.5 else "")
        text.append("█" * round(BAR * share) or "▏", "green" if share > 0.5 else "blue")
        text.append(f" {share:.0%}\n")
    text.rstrip()
    return text


def graph_panel(graph: DemoGraph, stats: Stats, shares: Mapping[str, float]) -> Panel:
    inside = Group(
        Text.assemble("in the body of weights: ", atoms(graph)),
        Text(f"pairs computed: {stats.edges} of {stats.n**2}"),
        Text(_hops(stats)),
        Text(f"“it” attends to (of {len(shares)} visible words)"),
        Padding(bars(shares), (0, 0, 0, 2)),
    )
    return Panel(
        inside, title=f"{graph.name}: {graph.description}", title_align="left", width=WIDTH
    )


def _hops(stats: Stats) -> str:
    reached = stats.reach[min(1, len(stats.reach) - 1)]
    every = f"{stats.layers:.0f}" if math.isfinite(stats.layers) else "never"
    return (
        f"receptive field after one layer: {reached:.0%}; layers to the full one: {every}; "
        f"spectral gap {stats.gap:.2f}"
    )


def long_panel(far: LongTextRun) -> Panel:
    of = LENGTH * LENGTH
    inside = Group(
        Text.assemble(
            "in the body of weights: ",
            ("+ ", "bold green"),
            (f"window({RADIUS})(V.I, V.J)", "bold black on yellow"),
        ),
        Text(f"pairs computed: {far.pairs:,} of {of:,} ({far.pairs / of:.2%}), by {far.kernel}"),
        Text(f"grounding, once: {far.ground_s:.1f} s"),
        Text(f"one step, forward and backward: {far.step_s:.1f} s"),
        Text(
            f"peak memory of the process: {far.peak_gib:.2f} GiB; "
            f"a dense score matrix alone: {of * 4 / 2**30:.0f} GiB"
        ),
    )
    return Panel(inside, title="window: nothing is N×N", title_align="left", width=WIDTH)


def speaker_panel(far: LongTextRun, spoken: LongTextRun) -> Panel:
    shown = ", ".join(map(repr, SAME_SPEAKER))
    inside = Group(
        Text.assemble(
            "in the body of weights: ",
            ("+ ", "bold green"),
            (shown, "bold black on yellow"),
        ),
        Text(f"pairs computed: {spoken.pairs:,}, not {far.pairs:,}; by {spoken.kernel}"),
        Text(f"grounding, once: {spoken.ground_s:.1f} s, without the atom {far.ground_s:.1f} s"),
        Text(f"one step: {spoken.step_s:.1f} s, without the atom {far.step_s:.1f} s"),
    )
    return Panel(inside, title="a query as a mask", title_align="left", width=WIDTH)


def progress(losses: Iterable[float], total: int, on: Console) -> Iterator[float]:
    """Yield the losses with a progress bar; without a terminal, print every 20th."""
    columns = (
        TextColumn("training"),
        BarColumn(BAR),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]:.2f}"),
    )
    with Progress(*columns, console=on, disable=not on.is_terminal) as bar:
        task = bar.add_task("training", total=total, loss=float("nan"))
        for step, loss in enumerate(losses, 1):
            bar.update(task, advance=1, loss=loss)
            if not on.is_terminal and (step % 20 == 0 or step == total):
                on.print(f"training {step:>3}/{total}  loss {loss:.2f}")
            yield loss


def checkpoint_panel(result: checkpoint.CheckpointResult) -> Panel:
    """Where a pretrained model attends, and what it finds."""
    where = f"layer {result.layer + 1}, head {result.head + 1}"
    lines: list[Text] = [
        Text(f"Of its {result.heads} heads, {where} attends most from “it” to “music”:"),
        bars(result.shares, 5),
        Text("\nSemantic search in 30 lines:"),
    ]
    for query, found in result.found.items():
        lines.append(Text.assemble(("\n" + query, "bold")))
        lines += [Text(f"  {cosine:.2f}  {line}") for cosine, line in found]
    return Panel(Group(*lines), title="a pretrained checkpoint", title_align="left", width=WIDTH)
