"""What may vary in the layer of any Transformer: options of a `Config`.

    graph         the pairs that attend: a pattern or its text, one per layer or per head, or
                  conditions on I and J
    norm          before each sublayer (pre), after each sum (post), or none
    scale         of q · k: sqrt (1/√d), none (1), or a number
    feed_forward  none, an activation such as gelu, a gated one such as swiglu, or a hidden size
    aggregation   softmax by scores; or the sum, mean or max of the values, without scores
    positions     learned, sinusoidal, rotary, alibi, relative or none

>>> from edgewise.zoo import gpt2
>>> gpt2.Config(graph="window(64) | global_tokens(1)", norm="post", feed_forward="swiglu").scale
'sqrt'
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from edgewise.errors import EdgewiseError, caller, safe_repr, suggest
from edgewise.graphs import (
    Pattern,
    causal,
    dilated,
    full,
    parse,
    per_head,
    per_layer,
    strided,
    window,
)
from edgewise.graphs.algebra import intersection, union
from edgewise.language import F, Program, R, V, repeat, scope
from edgewise.language.nodes import Atom, Expression, Function, Rule, Statement
from edgewise.language.statements import substitute

NORMS = ("pre", "post", "none")
AGGREGATIONS = ("softmax", "sum", "mean", "max")
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "relative", "none")
IN_SCORES = ("rotary", "alibi", "relative")
ACTIVATIONS: Mapping[str, Function] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": F.gelu_tanh,
    "silu": F.silu,
    "tanh": F.tanh,
}
GATED: Mapping[str, Function] = {"swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu}
FEED_FORWARDS = ("none", *ACTIVATIONS, *GATED)

Conditions = tuple[Expression, ...]
Graph = Pattern | per_head | per_layer | str | Conditions | None
Kind = TypeVar("Kind")
Edges = tuple[tuple[int, Conditions], ...]  # this many heads, and the conditions on their pairs


class BadConfig(EdgewiseError):
    """A model's configuration names one of the variants that its rules implement."""

    code = "bad-config"
    example = "from edgewise.zoo import transformer\ntransformer.Config(positions='rotatory')"
    instead = "from edgewise.zoo import transformer\ntransformer.Config(positions='rotary')"


def check_positive(config: object, *names: str) -> None:
    """Refuse a configuration in which one of these fields is not a positive integer."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            what = f"`{name}={safe_repr(value)}` is not positive"
            raise BadConfig(what, caller(), "give an integer ≥ 1")


@dataclass(frozen=True, kw_only=True)
class Block:
    """The options of a layer; the defaults are those of the model's paper.

    `graph` is that of self-attention; a decoder attends to earlier tokens only. Patterns per layer
    are used in turns, patterns per head divide the heads evenly. A token with no key is unchanged
    by attention.
    """

    graph: Graph = None
    norm: str | None = None
    scale: float | str | None = None
    feed_forward: str | int | None = None
    aggregation: str | None = None
    positions: str | None = None
    attention_dropout: float | None = None  # of attention weights; by default as of rows

    OWN: ClassVar[Mapping[str, Any]] = {}
    FITS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    NO_GRAPH: ClassVar[str] = ""  # why no graph can be set
    PER_HEAD: ClassVar[bool] = True

    def __post_init__(self) -> None:
        own = {"norm": "pre", "scale": "sqrt", "aggregation": "softmax", "positions": "none"}
        for name, value in (own | dict(self.OWN)).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.attention_dropout == getattr(self, "dropout", None):
            object.__setattr__(self, "attention_dropout", None)
        choices = {"norm": NORMS, "aggregation": AGGREGATIONS, "positions": POSITIONS}
        for name, known in choices.items():
            _one_of(type(self), name, getattr(self, name), self.FITS.get(name, known))
        _check_scale(self.scale)
        _check_feed_forward(self.feed_forward)
        if self.aggregation != "softmax":
            self._check_scores()
        object.__setattr__(self, "graph", _graph(self.graph))
        _check_graph(self)

    def _check_scores(self) -> None:
        """Without scores there is nothing to scale, and no positions in them."""
        if self.scale != self.OWN.get("scale", "sqrt"):
            raise BadConfig(
                f"`aggregation={self.aggregation!r}` has no scores that `scale` could scale",
                caller(),
                "leave `scale` out, or write `aggregation='softmax'`",
            )
        if self.positions in IN_SCORES:
            fits = [p for p in self.FITS.get("positions", POSITIONS) if p not in IN_SCORES]
            raise BadConfig(
                f"`positions={self.positions!r}` is part of the scores, which "
                f"`aggregation={self.aggregation!r}` does not have",
                caller(),
                f"choose one of {', '.join(fits)}",
            )


class Config(Protocol):
    """What the rules of a layer read of a model's configuration."""

    @property
    def size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def activation(self) -> Function: ...
    @property
    def eps(self) -> float: ...
    @property
    def dropout(self) -> float: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def norm(self) -> str | None: ...
    @property
    def scale(self) -> float | str | None: ...
    @property
    def feed_forward(self) -> str | int | None: ...
    @property
    def aggregation(self) -> str | None: ...
    @property
    def positions(self) -> str | None: ...
    @property
    def attention_dropout(self) -> float | None: ...


def _one_of(model: type, name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        what = model.__module__.rpartition(".")[2]
        raise BadConfig(
            f"`{name}={safe_repr(value)}` does not fit `{what}`: it is one of {', '.join(known)}",
            caller(),
            suggest(str(value), list(known), f"write `{name}={known[0]!r}`"),
        )


def _check_scale(scale: Any) -> None:
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if scale not in ("sqrt", "none") and not (number and math.isfinite(scale)):
        raise BadConfig(
            f"`scale={safe_repr(scale)}` is not sqrt, none or a number",
            caller(),
            "write `scale='none'` for q · k itself, or a number such as `scale=0.125`",
        )


def _check_feed_forward(kind: Any) -> None:
    if isinstance(kind, int) and not isinstance(kind, bool) and kind >= 1:
        return
    if kind is not None and (not isinstance(kind, str) or kind not in FEED_FORWARDS):
        raise BadConfig(
            f"`feed_forward={safe_repr(kind)}` is not a size or one of {', '.join(FEED_FORWARDS)}",
            caller(),
            suggest(
                str(kind), list(FEED_FORWARDS), "write `feed_forward='none'`, or a hidden size"
            ),
        )


def _graph(graph: Any) -> Graph:
    """A graph as patterns or conditions; text is the code of a pattern, or the body of a rule."""
    if isinstance(graph, str):
        graph = conditions(graph) if "@" in graph else parse(graph)
    if graph is None or isinstance(graph, Pattern | per_head | per_layer):
        return graph
    if isinstance(graph, tuple) and all(isinstance(c, Expression) for c in graph):
        return graph
    raise BadConfig(
        f"`graph={safe_repr(graph)}` is not a graph",
        caller(),
        "give a pattern such as `window(3)`, its text, `per_head(...)`, `per_layer(...)`, or "
        "conditions on `V.I` and `V.J`",
    )


def conditions(text: str) -> Conditions:
    """The conditions of the body of a rule, about the query `I` and the key `J`.

    >>> conditions("@sub(I, J, D), @leq(D, 5)")
    (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 5))
    """
    (rule,) = Program.parse(f"pair(I, J) :- *row(I), *row(J), {text.strip().rstrip('.')}.").rules
    body = rule.body if isinstance(rule.body, tuple) else (rule.body,)
    return tuple(body[2:])


def _check_graph(config: Any) -> None:
    """Patterns per layer and per head divide the layers and the heads."""
    model = type(config).__module__.rpartition(".")[2]
    if config.graph is not None and config.NO_GRAPH:
        raise BadConfig(f"`{model}` takes no `graph`", caller(), config.NO_GRAPH)
    graphs = config.graph.patterns if isinstance(config.graph, per_layer) else (config.graph,)
    for name in ("layers", "decoder_layers"):
        if getattr(config, name, len(graphs)) % len(graphs):
            raise BadConfig(
                f"{getattr(config, name)} {name.replace('_', ' ')} cannot take {len(graphs)} "
                "patterns in turns",
                caller(),
                "give a number of patterns that divides the layers",
            )
    for graph in graphs:
        if not isinstance(graph, Pattern | per_head | tuple | None):
            raise BadConfig(
                f"`{graph!r}` is not a pattern of a layer", caller(), "give one, or `per_head(...)`"
            )
        if isinstance(graph, per_head) and not config.PER_HEAD:
            raise BadConfig(
                f"`{model}` has one graph for all heads", caller(), "give one pattern, or per layer"
            )
        if isinstance(graph, per_head) and getattr(config, "heads", len(graph)) % len(graph):
            raise BadConfig(
                f"{config.heads} heads cannot be divided among {len(graph)} patterns",
                caller(),
                f"give a number of patterns that divides {config.heads}",
            )


def edges(
    config: Config, layers: int, *, own: Conditions = (), past: Conditions = (), shift: int = 0
) -> tuple[Edges, ...]:
    """The conditions of every layer: `own` where no graph is set; a graph is restricted to `past`.

    `past` is `(R.special.leq(V.J, V.I),)` in a decoder; row i of a segment is token `shift` + i.
    """
    graph = config.graph
    if graph is None:
        return (((config.heads, own),),) * layers
    graphs = graph.patterns if isinstance(graph, per_layer) else (graph,)
    each = [_edges(graph, config.heads, past, shift) for graph in graphs]
    return tuple(each[k % len(each)] for k in range(layers))


def _edges(graph: Any, heads: int, past: Conditions, shift: int) -> Edges:
    patterns = graph.patterns if isinstance(graph, per_head) else (graph,)
    return tuple((heads // len(patterns), _where(pattern, past, shift)) for pattern in patterns)


def _where(graph: Any, past: Conditions, shift: int) -> Conditions:
    if isinstance(graph, tuple):
        moved = R.special.add(V.I, shift, V.S), *substitute(graph, {"I": V.S})
        return (*(moved if shift else graph), *past)
    if graph == full() or (past and graph == causal()):
        return past
    pattern = graph & causal() if past else graph
    return ((pattern.shift(-shift, 0) if shift else pattern)(V.I, V.J),)


def everywhere(graph: Any) -> bool:
    """Whether it is certain that every token attends to some."""
    match graph:
        case None | full() | causal() | window() | dilated() | strided():
            return True
        case union():
            return any(map(everywhere, graph.members))
        case intersection():
            return all(map(everywhere, graph.members))
        case per_head() | per_layer():
            return all(map(everywhere, graph.patterns))
    return False


def stacked(
    block: Callable[[Kind], Callable[..., Any]], layers: Sequence[Kind], *inputs: Atom
) -> tuple[list[Statement], tuple[Atom, ...]]:
    """A block for each layer, named `layer.0` and so on: rules, and the outputs of the last.

    `layers` says what is each one's own, such as its edges. Equal layers print as one block.
    """
    if len(set(layers)) == 1:
        stack = repeat(block(layers[0]), len(layers))(*inputs)
        return [stack], tuple(R[f"layer.{name}"] for name in stack.outputs)
    rules: list[Statement] = []
    for k, kind in enumerate(layers):
        made = block(kind)(*inputs)
        own, outputs = made if isinstance(made, tuple) else (made, (last(made),))
        rules += scope(f"layer.{k}")(own)
        inputs = tuple(R[f"layer.{k}.{output.relation}"] for output in outputs)
    return rules, inputs


def last(rules: Sequence[Statement]) -> Atom:
    """The relation of the last rule."""
    rule = rules[-1]
    assert isinstance(rule, Rule)
    return R[rule.head.relation]
