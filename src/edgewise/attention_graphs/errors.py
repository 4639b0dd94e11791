"""Errors about the attention of a model: there is none, or not the part that was named."""

from edgewise.errors import EdgewiseError
from edgewise.pruning.errors import NoAttention, NoSuchHead

__all__ = ["BadCounterfactual", "BadEdgeChoice", "NoAttention", "NoSuchHead", "NoTokens"]


class BadEdgeChoice(EdgewiseError):
    """Edges are chosen by a threshold from 0 to 1, or as the strongest `top` of each query."""

    code = "bad-edge-choice"
    example = "attention_graph([torch.eye(3)[None]]).edges(threshold=2.0)"
    instead = "attention_graph([torch.eye(3)[None]]).edges(threshold=0.2)"


class NoTokens(EdgewiseError):
    """A model reads a text through its tokenizer, or inputs by name; each token has a label."""

    code = "no-tokens"
    example = "attention_graph([torch.eye(3)[None]], tokens=['to', 'be'])"
    instead = "attention_graph([torch.eye(3)[None]], tokens=['to', 'be', 'or'])"


class BadCounterfactual(EdgewiseError):
    """What is left out is a token, an edge of a layer, or a head of a layer, counted from 0."""

    code = "bad-counterfactual"
    example = """\
from edgewise.attention_graphs import without
without(Program([R.h(V.I) <= R.x(V.I)]).compile(R.h), removed="word:3", x=torch.ones(3, 2))"""
    instead = """\
from edgewise.attention_graphs import without
w = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [F.product, F.softmax_agg(agg_terms=[V.J])]
h = (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
without(Program([w, h]).compile(R.h), removed="token:1", x=torch.ones(3, 2))"""
