"""`edgewise parse`: the dependency trees of sentences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.checkpoint import Batch, Device, Json, json_line, opened, read_texts
from edgewise.cli.files import CannotWrite, written
from edgewise.errors import Span, caller

if TYPE_CHECKING:
    from edgewise.data import DependencyTree

Run = Annotated[str, typer.Argument(help="the folder of a run of a parser")]
Texts = Annotated[list[str] | None, typer.Argument(help="English sentences")]
File = Annotated[
    Path | None, typer.Option(help="a file with one sentence per line; - is the standard input")
]
Conllu = Annotated[
    Path | None,
    typer.Option(help="a file in CoNLL-U, whose words are parsed; the output is CoNLL-U"),
]
ToConllu = Annotated[bool, typer.Option("--to-conllu", help="print CoNLL-U")]
Svg = Annotated[Path | None, typer.Option(help="also draw the tree of one sentence: an SVG file")]


def parse(
    run: Run,
    texts: Texts = None,
    file: File = None,
    conllu: Conllu = None,
    to_conllu: ToConllu = False,
    svg: Svg = None,
    batch: Batch = 32,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Print the dependency tree of each sentence."""
    from edgewise.data import to_conllu as written

    sentences = _sentences(texts, file, conllu)
    trees = _parsed(run, sentences, device, batch)
    if svg is not None:
        _draw(trees, svg)
    if as_json:
        for tree in trees:
            typer.echo(json_line(words=tree.words, heads=tree.heads, relations=tree.relations))
    elif conllu is not None or to_conllu:
        typer.echo(written(trees), nl=False)
    else:
        _print(trees)


def _sentences(texts: list[str] | None, file: Path | None, conllu: Path | None) -> list[Any]:
    from edgewise.data import sentences

    if conllu is None:
        return [text for text in read_texts(texts or [], file) if text.strip()]
    if texts or file is not None:
        what = "both texts and `--conllu`"
        raise typer.BadParameter(f"{what} were given: give one of them")
    return sentences(conllu, heads=False)


def _parsed(run: str, sentences: list[Any], device: str | None, batch: int) -> list[Any]:
    from edgewise.training.errors import WrongTask
    from edgewise.training.runs.run import Run

    found = opened(run, device)
    if not isinstance(found, Run):
        what = f"`{run}` is a checkpoint, not a run of a parser"
        raise WrongTask(what, caller(), "train one: `edgewise train recipes/ud-parser.toml`")
    return found.parse(sentences, batch=batch)


def _draw(trees: "list[DependencyTree]", path: Path) -> None:
    from edgewise.viz.dependencies import draw_tree

    if len(trees) != 1:
        raise CannotWrite(
            f"there are {len(trees)} sentences, a picture is of one",
            Span.of("<svg>", path),
            "give one sentence",
        )
    written(path, draw_tree(trees[0]).save, "<svg>")


def _print(trees: "list[DependencyTree]") -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    console = Console(highlight=False, soft_wrap=True)
    for tree in trees:
        console.print(Text(" ".join(tree.words), style="dim"))
        below: dict[int, list[int]] = {}
        for at, head in enumerate(tree.heads, start=1):
            below.setdefault(head, []).append(at)

        def shown(at: int, tree: "DependencyTree" = tree) -> Text:
            name = tree.relations[at - 1]
            return Text.assemble(tree.words[at - 1], " ", (name, "cyan"))

        (root,) = below[0]
        branch = Tree(shown(root))
        waiting = [(root, branch)]
        while waiting:
            at, own = waiting.pop()
            waiting += [(child, own.add(shown(child))) for child in below.get(at, ())]
        console.print(branch)
