"""What a model would have said without a token, an edge or a head: counterfactuals.

    token:T      no other token attends to T, and what pools tokens leaves it out; positions stay
    edge:L,I,J   in layer L the query I does not attend to J: its other weights sum to 1
    head:L,H     in layer L the head H gives 0

The plan of the model is run once and its tensors are held; then only the nodes behind the change
are run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.errors import BadCounterfactual, NoAttention, NoSuchHead, NoTokens
from edgewise.attention_graphs.reading import read_text
from edgewise.attention_graphs.recording import READERS
from edgewise.errors import caller, safe_repr
from edgewise.inputs.kinds import InputLike
from edgewise.module import Model
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.plan import PhysicalPlan, run_node
from edgewise.zoo.pretrained.model import Pretrained

COUNTS = {"token": 1, "edge": 3, "head": 2}
SAYS = "write `token:3`, `edge:0,5,2` (layer, query, key) or `head:0,7` (layer, head)"


@dataclass(frozen=True)
class Removed:
    """What is left out: a token, an edge of a layer from a query to a key, or a head of a layer.

    >>> Removed.read("edge:0,5,2")
    Removed(kind='edge', numbers=(0, 5, 2))
    """

    kind: str
    numbers: tuple[int, ...]

    @classmethod
    def read(cls, text: Any) -> Removed:
        kind, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
        try:
            numbers = tuple(int(part) for part in rest.split(","))
        except ValueError:
            numbers = ()
        if len(numbers) != COUNTS.get(kind.strip(), -1):
            raise BadCounterfactual(
                f"{safe_repr(text)} is not a token, an edge or a head", caller(), SAYS
            )
        return cls(kind.strip(), numbers)

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(map(str, self.numbers))}"


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """The effect of leaving something out: the output before and after, the change of each layer.

    `changes[l][i]` is the norm of the change of token i's output of attention l, relative to the
    norm of that output; `rows` are the rows of relations that were computed again, of `all_rows`.

    >>> from edgewise import F, Program, R, V
    >>> weights = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [
    ...     F.product,
    ...     F.softmax_agg(agg_terms=[V.J]),
    ... ]
    >>> out = (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    >>> model = Program([weights, out]).compile(R.h)
    >>> found = without(model, removed="head:0,0", x=torch.tensor([[0.0], [2.0]]))
    >>> found.change, found.json()["changes"]
    (1.0, [[1.0, 1.0]])
    """

    removed: Removed
    tokens: tuple[str, ...]
    before: Tensor
    after: Tensor
    changes: tuple[tuple[float, ...], ...]
    rows: int
    all_rows: int

    @property
    def change(self) -> float:
        """The length of the change of the output, relative to its length."""
        return _relative(self.before, self.after)

    def json(self) -> dict[str, object]:
        """The same as numbers, lists and names."""
        return {
            "without": str(self.removed),
            "change": self.change,
            "tokens": list(self.tokens),
            "changes": [list(layer) for layer in self.changes],
            "recomputed": {"rows": self.rows, "of": self.all_rows},
        }

    def __repr__(self) -> str:
        width = max((len(t) for t in self.tokens), default=1)
        named = self._named()
        head = " ".join(f"{layer:>6}" for layer in range(len(self.changes)))
        lines = [
            f"without {named}: the output changes by {self.change:.1%}; "
            f"{self.rows:,} of {self.all_rows:,} rows computed again",
            f"{'token':<{width}}  {head}",
        ]
        for at, token in enumerate(self.tokens):
            each = (f"{layer[at]:>6.1%}" if layer[at] else f"{'·':>6}" for layer in self.changes)
            lines.append(f"{token:<{width}}  {' '.join(each)}")
        return "\n".join(lines)

    def _named(self) -> str:
        n = self.removed.numbers
        match self.removed.kind:
            case "token":
                return f"token {n[0]} `{self.tokens[n[0]]}`"
            case "edge":
                ends = " → ".join(f"`{self.tokens[k]}`" for k in n[1:])
                return f"the edge {ends} of layer {n[0]}"
        return f"head {n[1]} of layer {n[0]}"


def without(
    model: Model | Pretrained,
    text: str | None = None,
    removed: str = "",
    *,
    tokens: Sequence[str] | None = None,
    truncate: bool = False,
    **inputs: InputLike,
) -> Counterfactual:
    """The output without a token, an edge or a head; equal to recomputing everything.

    - removed: `token:3`, `edge:0,5,2` (layer, query, key) or `head:0,7` (layer, head), from 0.

    >>> from edgewise import F, Program, R, V
    >>> weights = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [
    ...     F.product,
    ...     F.softmax_agg(agg_terms=[V.J]),
    ... ]
    >>> out = (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    >>> model = Program([weights, out]).compile(R.h)
    >>> without(model, removed="edge:0,1,0", x=torch.tensor([[0.0], [2.0]])).after[1].item()
    2.0
    """
    what = Removed.read(removed)
    compiled, read, words = _inputs(model, text, truncate, inputs)
    training = compiled.training
    try:
        compiled.eval()
        step, values = compiled._resolved(None, read)
        plan = compiled._plan(step, values)
        weights = compiled._weights()
        sizes = {name: index.rows for name, index in step.executable.relations.items()}
        with torch.no_grad():
            run = _RunPlan(plan, [*values.values(), *weights.values()], list(values))
            return run.counterfactual(what, tokens if tokens is not None else words, sizes)
    finally:
        compiled.train(training)


def _inputs(
    model: Any, text: str | None, truncate: bool, inputs: Mapping[str, Any]
) -> tuple[Model, dict[str, Any], list[str] | None]:
    if isinstance(model, Pretrained):
        if text is None:
            return model.model, dict(inputs), None
        compiled, found, words = read_text(model, text, truncate)
        return compiled, {**found, **inputs}, words
    if not isinstance(model, Model):
        raise NoAttention(
            f"a model is expected, got {type(model).__name__}",
            caller(),
            "load one: `zoo.from_pretrained(path)`, or compile a program",
        )
    if text is not None:
        raise NoTokens("a program has no tokenizer", caller(), "give its inputs by name")
    return model, dict(inputs), None


class _RunPlan:
    """The nodes of a plan with what they gave, and the attention calls among them."""

    def __init__(self, plan: PhysicalPlan, tensors: Sequence[Tensor], names: list[str]) -> None:
        self.plan, self.nodes = plan, list(plan.graph.nodes)
        self.held: dict[Node, Any] = {}
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.held.update(zip(inputs, tensors, strict=True))
        self.inputs = dict(zip(names, inputs, strict=False))
        self.layers: list[Node] = []
        self.run(dict(self.held), self.held, {})
        if not self.layers:
            raise NoAttention(
                "the model has no attention node", caller(), "write a softmax over keys"
            )

    def run(
        self, values: dict[Node, Any], into: dict[Node, Any], change: Mapping[Node, Any]
    ) -> None:
        """Run the nodes that have no value, those after an attention that `change` changes."""
        for node in self.nodes:
            if node.op == "get_attr":
                values[node] = self.plan.constants[str(node.target)]
            elif node.op.startswith("call") and node not in values:
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                if self._is_attention(node) and node not in self.layers:
                    self.layers.append(node)
                found = run_node(node, args, kwargs)
                values[node] = change[node](found, args, kwargs) if node in change else found
            elif node.op == "output":
                values[node] = map_arg(node.args[0], values.__getitem__)
        into.update(values)

    def _is_attention(self, node: Node) -> bool:
        work = node.meta.get("of")
        step = None if work is None else work.step
        return isinstance(step, AttentionStep) and callable(node.target) and node.target in READERS

    def counterfactual(
        self, what: Removed, tokens: Sequence[str] | None, sizes: Mapping[str, int]
    ) -> Counterfactual:
        first = self._call(self.layers[0])
        words = tuple(map(str, range(first.n))) if tokens is None else tuple(tokens)
        starts = self._changes(what, len(words))
        again = self._behind(starts)
        values = {node: value for node, value in self.held.items() if node not in again}
        values |= {node: new for node, new in starts.items() if isinstance(new, Tensor)}
        after: dict[Node, Any] = {}
        self.run(values, after, {n: f for n, f in starts.items() if not isinstance(f, Tensor)})
        out = self.nodes[-1]
        relations = {n.meta["of"].relation for n in again if n.meta.get("of") is not None}
        every = {n.meta["of"].relation for n in self.nodes if n.meta.get("of") is not None}
        changes = tuple(
            _by_token(self.held[layer], after[layer], len(words)) for layer in self.layers
        )
        return Counterfactual(
            what, words, _one(self.held[out]), _one(after[out]), changes,
            sum(sizes.get(name, 0) for name in relations),
            sum(sizes.get(name, 0) for name in every),
        )  # fmt: skip

    def _behind(self, starts: Mapping[Node, Any]) -> set[Node]:
        found = set(starts)
        for node in self.nodes:
            if any(arg in found for arg in node.all_input_nodes):
                found.add(node)
        return found

    def _call(self, node: Node) -> AttentionCall:
        args, kwargs = map_arg((node.args, node.kwargs), self._value)
        call: AttentionCall = READERS[node.target](node.meta["of"].relation, 0, *args, **kwargs)
        return call

    def _value(self, node: Node) -> Any:
        return self.held[node]

    def _changes(self, what: Removed, count: int) -> dict[Node, Any]:
        """What replaces nodes: a tensor, or a function of what a node gives."""
        if what.kind == "token":
            return self._without_token(_counted(what.numbers[0], count, "token"))
        layer = self.layers[_counted(what.numbers[0], len(self.layers), "layer")]
        if what.kind == "head":
            head = _counted(what.numbers[1], self._call(layer).heads, "head of the layer")
            return {layer: lambda found, args, kwargs: _zeroed(found, head)}
        i, j = (_counted(n, count, "token") for n in what.numbers[1:])
        self._check_edge(layer, i, j)
        return {layer: self._less(layer, [i], j)}

    def _check_edge(self, layer: Node, query: int, key: int) -> None:
        call = self._call(layer)
        for head in range(call.heads):
            row = call.take(head).block(query, query + 1)
            if bool((row.weights[0, 0][row.keys[0] == key] > 0).any()):
                return
        number = self.layers.index(layer)
        raise BadCounterfactual(
            f"in layer {number} the query {query} does not attend to the key {key}",
            caller(),
            f"`attention_graph(model, text).edges(layer={number})` lists those that there are",
        )

    def _without_token(self, token: int) -> dict[Node, Any]:
        mask = self.inputs.get("mask")
        if mask is not None:
            new = self.held[mask].clone()
            new.reshape(new.shape[0], -1)[:, token] = 0
            return {mask: new}
        return {layer: self._less(layer, None, token) for layer in self.layers}

    def _less(self, layer: Node, queries: list[int] | None, key: int) -> Any:
        """The output of an attention whose queries (None: all others) do not attend to a key."""

        def change(found: Tensor, args: Any, kwargs: Any) -> Tensor:
            name = layer.meta["of"].relation
            call: AttentionCall = READERS[layer.target](name, 0, *args, **kwargs)
            own = [i for i in range(call.n) if i != key] if queries is None else queries
            return _reweighed(found, call, args[2], own, key)

        return change


def _reweighed(
    found: Tensor, call: AttentionCall, v: Tensor, queries: list[int], key: int
) -> Tensor:
    """Rows of the output (1, heads..., n, d) whose weights leave a key out, and sum to 1."""
    if call.query_order is not None or len(found) != 1:
        raise BadCounterfactual(
            f"`{call.name}` attends to sorted tokens, or has several samples",
            caller(),
            "leave a head out instead, or give one sample",
        )
    out = found.clone()
    flat = out.view(-1, *out.shape[-2:])
    values = v[0].flatten(0, -3) if v.ndim > 4 else v[0]
    values = values.repeat_interleave(len(flat) // len(values), 0)
    for head in range(len(flat)):
        for i in queries:
            block = call.take(head).block(i, i + 1)
            keys, row = block.keys[0], block.weights[0, 0]
            left = keys != key
            if bool(left.all()):
                continue
            rest = row[left].to(values.dtype)
            total = rest.sum()
            mean = (rest / total) @ values[head][keys[left]] if total > 0 else 0.0
            flat[head, i] = mean
    return out


def _zeroed(found: Tensor, head: int) -> Tensor:
    out = found.clone()
    out.view(len(out), -1, *out.shape[-2:])[:, head] = 0
    return out


def _counted(number: int, count: int, what: str) -> int:
    if not 0 <= number < count:
        raise NoSuchHead(
            f"there is no {what} {number}: there are {count}",
            caller(),
            f"count from 0 to {count - 1}",
        )
    return number


def _one(value: Any) -> Tensor:
    """The output, or the first of several."""
    while isinstance(value, list | tuple):
        value = value[0]
    assert isinstance(value, Tensor)
    return value.detach()


def _relative(before: Tensor, after: Tensor) -> float:
    size = before.double().norm().item()
    change = (after.double() - before.double()).norm().item()
    return change / size if size else change


def _by_token(before: Tensor, after: Tensor, count: int) -> tuple[float, ...]:
    """How much of what a layer's attention gives each token changes: (1, heads..., n, d)."""
    old, new = (t.double().movedim(-2, 0).flatten(1) for t in (before, after))
    change, size = (new - old).norm(dim=1), old.norm(dim=1)
    shares = torch.where(size > 0, change / size.clamp(min=1e-300), change)
    return tuple(shares[:count].tolist())
