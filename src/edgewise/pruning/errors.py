"""Errors about attention heads: there are none, not that one, or it cannot be taken away."""

from edgewise.errors import EdgewiseError


class NoAttention(EdgewiseError):
    """The attention of a model is read from its attention nodes, or from Hugging Face's modules.

    A rule that aggregates without a softmax over keys is not an attention, nor is one that the
    compiler does not fuse.
    """

    code = "no-attention"
    example = "attention_graph(Program([R.h(V.I) <= R.x(V.I)]).compile(R.h), x=torch.ones(3, 2))"
    instead = "attention_graph([torch.eye(3)[None]], tokens=['to', 'be', 'or']).edges()"


class NoSuchHead(EdgewiseError):
    """Layers and heads count from 0, tokens too; a negative number counts from the end."""

    code = "no-such-head"
    example = "attention_graph([torch.eye(3)[None]]).edges(layer=0, head=7)"
    instead = "attention_graph([torch.eye(3)[None]]).edges(layer=0, head=0)"


RULES = """\
from edgewise.pruning import prune
rules = [R[n](V.H, V.I) <= R.x(V.I)[W[n](V.H)[2, 4]] for n in "qkv"]
w = (R.w(V.H, V.I, V.J) <= R.k(V.H, V.J).T @ R.q(V.H, V.I)) | [F.softmax_agg(agg_terms=[V.J])]
a = (R.a(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product]
o = (R.o(V.I) <= R.a(V.H, V.I)) | [F.concat_agg]
y = R.y(V.I) <= R.o(V.I)[4, 8]
"""


class NotPrunable(EdgewiseError):
    """A head is taken away with its weights: a family over the heads' variable has one for each, a
    matrix after their concatenation has its columns. What reads the heads otherwise would change.
    """

    code = "not-prunable"
    example = RULES + "prune(Program([*rules, w, a, o], domains={V.H: 4}).compile(R.o), {0: [1]})"
    instead = (
        RULES + "prune(Program([*rules, w, a, o, y], domains={V.H: 4}).compile(R.y), {0: [1]})"
    )


class BadImportance(EdgewiseError):
    """The importance of heads is measured on samples by a loss, one finite number for each."""

    code = "bad-importance"
    example = (
        RULES
        + """\
from edgewise.pruning import importance
model = Program([*rules, w, a, o, y], domains={V.H: 4}).compile(R.y, seed=0)
importance(model, [{"x": torch.ones(3, 4)}], loss=lambda y: y.sum() / 0)"""
    )
    instead = (
        RULES
        + """\
from edgewise.pruning import importance
model = Program([*rules, w, a, o, y], domains={V.H: 4}).compile(R.y, seed=0)
importance(model, [{"x": torch.ones(3, 4)}], loss=lambda y: y.square().mean())"""
    )
