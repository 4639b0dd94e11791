"""Attention, multi-head attention and the blocks of a Transformer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgewise.errors import caller
from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.core.constructs.function import Aggregation, Combination, Transformation
from edgewise.neuralogic.errors import BadTemplate
from edgewise.neuralogic.nn.module.general import MLP
from edgewise.neuralogic.nn.module.module import Entry, TemplateModule, atom, terms


@dataclass(eq=False, repr=False)
class DotAttention(TemplateModule):
    """softmax over Y of k(Y)ᵀ·q(X) / √d, times v(Y); `mask_name` has the pairs that count.

    >>> rules = Attention(4, "h", "q", "k", "v")()
    >>> print(*(str(rule).partition(" [")[0] for rule in rules), sep="\\n")
    <0.5> h__dk.
    h__dot(X, Y) :- h__dk, transpose(k(Y)), q(X).
    h(X) :- h__dot(X, Y), v(Y).
    """

    embed_dim: int
    output_name: str
    query_name: str
    key_name: str
    value_name: str
    mask_name: str | None = None
    arity: int = 1

    def __call__(self) -> list[Entry]:
        shared = terms(self.arity - 1)
        queries, keys, pairs = [*shared, "X"], [*shared, "Y"], [*shared, "X", "Y"]
        scale, score = R.get(f"{self.output_name}__dk"), atom(f"{self.output_name}__dot", pairs)
        mask = [] if self.mask_name is None else [R.hidden.get(self.mask_name)(pairs)]
        body = [scale, atom(self.key_name, keys).T, atom(self.query_name, queries), *mask]
        softmax = Aggregation.SOFTMAX(agg_terms=["Y"])
        weighted = atom(self.output_name, queries) <= (score, atom(self.value_name, keys))
        return [
            scale[1 / math.sqrt(self.embed_dim)].fixed(),
            (score <= body) | [Combination.PRODUCT, softmax],
            weighted | [Combination.PRODUCT, Aggregation.SUM],
        ]


@dataclass(eq=False, repr=False)
class MultiheadAttention(TemplateModule):
    """Projections, attention in slices of them, and a projection of all heads side by side.

    >>> rules = MultiheadAttention(4, 2, "h", "q", "k", "v")()
    >>> print(len(rules), "entries; the first rule:", rules[0])
    10 entries; the first rule: <0.7071067811865475> h__attention__dk.
    """

    embed_dim: int
    num_heads: int
    output_name: str
    query_name: str
    key_name: str
    value_name: str
    vdim: int | None = None
    kdim: int | None = None
    mask_name: str | None = None
    arity: int = 1

    def __post_init__(self) -> None:
        if self.num_heads < 1 or self.embed_dim % self.num_heads:
            raise BadTemplate(
                f"{self.embed_dim} features cannot be divided among {self.num_heads} heads",
                caller(),
                "choose a number of heads that divides them",
            )
        self.inputs = {"q": self.query_name, "v": self.value_name, "k": self.key_name}
        size = self.embed_dim
        self.sizes = {"q": size, "v": self.vdim or size, "k": self.kdim or size}

    def _projected(self, kind: str, keys: list[Any]) -> Any:
        weight = f"{self.output_name}_{kind}w"
        return atom(self.inputs[kind], keys)[weight : self.embed_dim, self.sizes[kind]]

    def __call__(self) -> list[Entry]:
        out, keys, count = self.output_name, terms(self.arity), self.num_heads
        names = {kind: f"{out}__{kind}proj" for kind in self.inputs}
        inner = (names["q"], names["k"], names["v"])
        size, inner_arity = self.embed_dim // count, self.arity + (count > 1)
        attention = DotAttention(size, f"{out}__attention", *inner, self.mask_name, inner_arity)
        rules: list[Any] = []
        if count == 1:
            for kind in self.inputs:
                weight, to = f"{out}_{kind}w", (self.embed_dim, self.sizes[kind])
                head = atom(names[kind], keys)[weight : to[0], to[1]]
                rules.append(head <= atom(self.inputs[kind], keys))
        for at in range(count if count > 1 else 0):
            part = [Transformation.SLICE(rows=(at * size, (at + 1) * size))]
            for kind in self.inputs:
                rules.append((atom(names[kind], [at, *keys]) <= self._projected(kind, keys)) | part)
        heads = [[]] if count == 1 else [[head] for head in range(count)]
        body = [atom(f"{out}__attention", [*head, *keys]) for head in heads]
        last = atom(out, keys)[self.embed_dim, self.embed_dim] <= body
        return [*attention(), *rules, last if count == 1 else last | [Combination.CONCAT]]


@dataclass(eq=False, repr=False)
class EncoderBlock(TemplateModule):
    """Attention and a perceptron, each added to its input and normalised."""

    input_dim: int
    num_heads: int
    dim_feedforward: int
    output_name: str
    query_name: str
    key_name: str
    value_name: str
    mask_name: str | None = None
    arity: int = 1
    mlp: bool = True

    def __post_init__(self) -> None:
        self.names = (self.query_name, self.key_name, self.value_name)

    def __call__(self) -> list[Entry]:
        keys, out, size = terms(self.arity), self.output_name, self.input_dim
        attended, normal, inner = f"{out}__mhattn", f"{out}__norm", f"{out}__mlp"
        options: dict[str, Any] = {"mask_name": self.mask_name, "arity": self.arity}
        attention = MultiheadAttention(size, self.num_heads, attended, *self.names, **options)

        def added(name: str, *parts: str) -> Any:
            body = [atom(part, keys) for part in parts]
            return (atom(name, keys) <= body) | [Transformation.NORM]

        if not self.mlp:
            return [*attention(), added(out, attended, self.names[0])]
        functions = [Transformation.RELU, Transformation.IDENTITY]
        sizes = [size, self.dim_feedforward, size]
        perceptron = MLP(sizes, inner, normal, functions, self.arity)
        first = added(normal, attended, self.names[0])
        return [*attention(), first, *perceptron(), added(out, normal, inner)]


class TransformerEncoder(EncoderBlock):
    """A block in which every row attends to every row, or to those of the mask.

    >>> print(len(TransformerEncoder(4, 2, 8, "h", "x")()), "entries")
    14 entries
    """

    def __init__(
        self,
        input_dim: int,
        num_heads: int,
        dim_feedforward: int,
        output_name: str,
        input_name: str,
        mask_name: str | None = None,
        arity: int = 1,
    ) -> None:
        names = (input_name, input_name, input_name)
        sizes = (input_dim, num_heads, dim_feedforward)
        super().__init__(*sizes, output_name, *names, mask_name, arity)


@dataclass(eq=False, repr=False)
class TransformerDecoder(TemplateModule):
    """Attention to itself, then a block that attends to the encoder.

    >>> print(len(TransformerDecoder(4, 2, 8, "h", "x", "encoded")()), "entries")
    25 entries
    """

    input_dim: int
    num_heads: int
    dim_feedforward: int
    output_name: str
    input_name: str
    encoder_name: str
    mask_name: str | None = None
    memory_mask_name: str | None = None
    arity: int = 1

    def __call__(self) -> list[Entry]:
        own, inner = (self.input_name,) * 3, f"{self.output_name}__decoder"
        sizes = (self.input_dim, self.num_heads, self.dim_feedforward)
        first = EncoderBlock(*sizes, inner, *own, self.mask_name, self.arity, False)
        names = (inner, self.encoder_name, self.encoder_name)
        second = EncoderBlock(*sizes, self.output_name, *names, self.memory_mask_name, self.arity)
        return [*first(), *second()]


@dataclass(eq=False, repr=False)
class TransformerModule(TemplateModule):
    """An encoder of the source, and a decoder of the target that attends to it.

    >>> print(len(Transformer(4, 2, 8, "h", "source", "target")()), "entries")
    39 entries
    """

    input_dim: int
    num_heads: int
    dim_feedforward: int
    output_name: str
    src_name: str
    tgt_name: str
    src_mask_name: str | None = None
    tgt_mask_name: str | None = None
    memory_mask_name: str | None = None
    arity: int = 1

    def __call__(self) -> list[Entry]:
        sizes = (self.input_dim, self.num_heads, self.dim_feedforward)
        inner, masks = f"{self.output_name}__encoder", (self.tgt_mask_name, self.memory_mask_name)
        encoder = TransformerEncoder(*sizes, inner, self.src_name, self.src_mask_name, self.arity)
        names = (self.output_name, self.tgt_name, inner)
        return [*encoder(), *TransformerDecoder(*sizes, *names, *masks, self.arity)()]


Attention = DotAttention
Transformer = TransformerModule
