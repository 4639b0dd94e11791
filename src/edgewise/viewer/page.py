"""`view`: attention as a page, one HTML file that opens offline."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from torch import Tensor, nn

from edgewise.attention_graphs import AttentionGraph, attention_graph
from edgewise.attention_graphs.reading import Tokenize, Weights
from edgewise.errors import caller, safe_repr
from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.inputs.kinds import InputLike
from edgewise.viewer.errors import CannotSave, CannotShow, MissingAssets, ViewTooLarge
from edgewise.viewer.payload import BYTES, Panel, model_panel, packed, pattern_panel
from edgewise.zoo.pretrained.model import Pretrained

MOST_BYTES = 1_000_000
HEIGHT = 760  # of the frame in a notebook
LONGEST_TITLE = 200
LONGEST = 1 << 20  # tokens of a pattern
Viewable = nn.Module | Pretrained | Pattern | AttentionGraph | Weights
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="app"><noscript>This page draws attention with its own script, which is switched off.</noscript></main>
<script type="text/plain" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501


@dataclass(frozen=True)
class View:
    """A page about attention: shown by a notebook, or saved as one file that needs no network.

    >>> import tempfile
    >>> import torch
    >>> from edgewise import F, Program, R, V, view
    >>> weights = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [
    ...     F.product,
    ...     F.softmax_agg(agg_terms=[V.J]),
    ... ]
    >>> out = (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    >>> model = Program([weights, out]).compile(R.h)
    >>> page = view(model, x=torch.randn(3, 4), tokens=["a", "b", "c"])
    >>> page.save(tempfile.mkdtemp() + "/attention.html").stat().st_size > 1000
    True
    """

    html: str
    title: str

    def save(self, path: str | Path = "attention.html") -> Path:
        """Write the page, and return its path.

        >>> import tempfile
        >>> View("<p>attention</p>", "a title").save(tempfile.mkdtemp() + "/page.html").name
        'page.html'
        """
        place = Path(path)
        try:
            place.write_text(self.html, encoding="utf-8")
        except OSError as problem:
            raise CannotSave(
                f"cannot write `{place}`: {problem.strerror}", caller(), "choose another file"
            ) from None
        return place

    def __repr__(self) -> str:
        return f"View({self.title}, {len(self.html.encode()) / 1000:,.0f} kB)"

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{escape(self.title)}" sandbox="allow-scripts" width="100%" '
            f'height="{HEIGHT}" style="border:0" srcdoc="{escape(self.html)}"></iframe>'
        )


def view(
    model: Viewable,
    text: str | Tensor | None = None,
    *,
    beside: Viewable | None = None,
    n: int = 64,
    title: str | None = None,
    tokenizer: Tokenize | None = None,
    tokens: Sequence[str] | None = None,
    sample: int = 0,
    truncate: bool = False,
    **inputs: InputLike,
) -> View:
    """Attention as a page: the graph of tokens, the map, all heads, hops, and a pattern lab.

    `model` is anything that `attention_graph` takes, with a text or inputs by name, or a pattern
    of n tokens; `beside` another one for the same text, to compare. In a notebook the last line of
    a cell shows the page; `.save("page.html")` writes it.

    >>> from edgewise.graphs import window
    >>> view(window(2), n=16).title
    'window(2)'
    """
    reading = {"tokenizer": tokenizer, "tokens": tokens, "sample": sample, "truncate": truncate}
    if isinstance(model, Pattern) and text is not None and beside is None:
        raise CannotShow(
            "a pattern reads no text", caller(), "write `view(pattern, n=64)`, or give a model"
        )
    if title is not None and not isinstance(title, str):
        raise CannotShow(f"the title is {safe_repr(title)}", caller(), 'give a text: `title="..."`')
    panels: list[Panel] = []
    shown = [model] if beside is None else [model, beside]
    if all(isinstance(one, AttentionGraph | Pattern) for one in shown) and (
        text is not None or tokens is not None or inputs
    ):
        raise CannotShow(
            "nothing here reads a text, tokens or inputs: an attention graph has its own",
            caller(),
            "leave them out, or give the model that they are for",
        )
    for one in shown:
        budget = BYTES // len(shown)
        if isinstance(one, Pattern):
            length = panels[0][0]["n"] if panels else integer(n, "n", 1, LONGEST)
            panels.append(pattern_panel(one, length, repr(one)[:LONGEST_TITLE], budget))
        else:
            graph = (
                one
                if isinstance(one, AttentionGraph)
                else attention_graph(one, text, **reading, **inputs)  # type: ignore[arg-type]
            )
            named = title if title is not None and not panels else _title(one)
            panels.append(model_panel(graph, named[:LONGEST_TITLE], budget))
    return page(panels, title or " beside ".join(panel["title"] for panel, _ in panels))


def page(panels: list[Panel], title: str) -> View:
    """The HTML of panels; everything of the user's is in base64 or escaped."""
    data = base64.b64encode(packed(panels)).decode()
    html = PAGE.format(
        policy=POLICY,
        title=escape(title),
        style=read_asset("viewer.css"),
        data=data,
        script=read_asset("viewer.js"),
    )
    if len(html.encode()) > MOST_BYTES:
        raise ViewTooLarge(
            f"the page has {len(html.encode()):,} bytes, more than {MOST_BYTES:,}",
            caller(),
            "show a shorter text or fewer labels",
        )
    return View(html, title)


@cache
def read_asset(name: str) -> str:
    """The text of a built file; one that would end its element early is refused."""
    path = Path(__file__).with_name("assets") / name
    try:
        found = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise MissingAssets(
            f"the package has no `{name}`", caller(), "install it again, or run `make viewer`"
        ) from None
    if "</script" in found.lower() or "</style" in found.lower():
        raise MissingAssets(f"`{name}` is damaged", caller(), "run `make viewer`")
    return found.strip()


def _title(model: object) -> str:
    if isinstance(model, Pretrained):
        return model.architecture
    if isinstance(model, AttentionGraph):
        return f"{len(model.tokens)} tokens"
    return type(model).__name__ if isinstance(model, nn.Module) else "attention"
