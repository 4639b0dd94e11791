"""Errors about the attention of a model: there is none, or not the part that was named."""

from edgewise.errors import EdgewiseError


class NoAttention(EdgewiseError):
    """The attention of a model is read from its attention nodes, or from Hugging Face's modules.

    A rule that aggregates without a softmax over keys is no attention, nor is one whose attention
    the compiler does not fuse.
    """

    code = "no-attention"
    example = "attention_graph(Program([R.h(V.I) <= R.x(V.I)]).compile(R.h), x=torch.ones(3, 2))"
    instead = "attention_graph([torch.eye(3)[None]], tokens=['to', 'be', 'or']).edges()"


class NoSuchHead(EdgewiseError):
    """Layers and heads count from 0, tokens too; a negative number counts from the end."""

    code = "no-such-head"
    example = "attention_graph([torch.eye(3)[None]]).edges(layer=0, head=7)"
    instead = "attention_graph([torch.eye(3)[None]]).edges(layer=0, head=0)"


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
