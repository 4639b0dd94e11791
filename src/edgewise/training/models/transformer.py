"""The options of a layer as keys of a recipe: those of `edgewise.zoo.block.Block`, as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.graphs import Pattern, parse, per_head
from edgewise.training.schema import Mistakes, check_heads, check_patterns, number, one_of
from edgewise.zoo import transformer
from edgewise.zoo.block import AGGREGATIONS, NORMS, POSITIONS

NAMES = ("graph", "norm", "scale", "feed_forward", "aggregation", "positions")


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Sizes and options of a Transformer.

    `graph` is the text of a pattern, `per_layer(...)` or `per_head(...)`, conditions such as
    `@sub(I, J, D), @leq(D, 5)`, or a list of patterns among which heads are divided evenly; empty
    is that of the model. `feed_forward` is `none`, an activation, a gated one such as `swiglu`, or
    a hidden size; empty is that of the model.
    """

    layers: int = number(least=1)
    heads: int = number(least=1)
    size: int = number(least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    graph: str | list = ""
    norm: str = one_of("pre", *NORMS)
    scale: str | int | float = "sqrt"
    feed_forward: str | int = ""
    aggregation: str = one_of("softmax", *AGGREGATIONS)
    positions: str = one_of("learned", *POSITIONS)

    def layer_options(self) -> dict[str, Any]:
        """The options as a configuration of the zoo takes them."""
        graph: Any = self.graph or None
        if isinstance(graph, list):
            graph = per_head(*(p for p in map(parse, graph) if isinstance(p, Pattern)))
        chosen = {name: getattr(self, name) for name in NAMES}
        return chosen | {"graph": graph, "feed_forward": self.feed_forward or None}

    def sizes(self, words: int, length: int) -> Any:
        """The configuration of the zoo's model."""
        raise NotImplementedError

    def check(self) -> Mistakes:
        found = list(check_heads(self.size, self.heads))
        if isinstance(self.graph, list):
            found += check_patterns("graph", self.graph)
        yield from found or check_config(lambda: self.sizes(2, 2))
        if self.size % 2 and self.positions == "sinusoidal":
            yield "size", f"{self.size} is odd", "positions are pairs of sine and cosine"
        if self.size // self.heads % 2 and self.positions == "rotary":
            what = f"heads of {self.size // self.heads} features cannot be rotated in pairs"
            yield "heads", what, "give heads with an even number of features"


def stack_sizes(model: Any, words: int, length: int, *, tied: bool = False) -> transformer.Config:
    """The configuration of the zoo's encoder–decoder, or of its encoder."""
    return transformer.Config(
        vocabulary=words,
        size=model.size,
        heads=model.heads,
        hidden=model.hidden,
        layers=model.layers,
        decoder_layers=model.layers,
        length=length,
        dropout=model.dropout,
        tied=tied,
        **model.layer_options(),
    )


def check_config(build: Callable[[], Any]) -> Mistakes:
    """What the configuration of the zoo refuses, at the key that it names."""
    try:
        build()
    except EdgewiseError as error:
        named = [name for name in NAMES if f"`{name}" in error.message]
        yield named[0] if named else "graph", error.message, error.help
