"""Errors of attention in Hugging Face models."""

from edgewise.errors import EdgewiseError, EdgewiseWarning

TINY = "hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8"
BERT = f"""\
from transformers import BertConfig, BertModel
from edgewise import hf
model = BertModel(BertConfig(vocab_size=9, {TINY}))
"""

GPT = """\
from transformers import GPT2Config, GPT2LMHeadModel
from edgewise import hf
model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_head=2, n_layer=1, n_positions=16))
"""

ARCS = """\
program = Program([
    (R.score(V.H, V.I, V.J) <= (R.k(V.H, V.J).T @ R.q(V.H, V.I), R.arc(V.I, V.J)))
    | [F.softmax_agg(agg_terms=[V.J])],
    (R.out(V.H, V.I) <= (R.score(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
])"""


class NotPluggable(EdgewiseError):
    """Only a model that looks up its attention function in transformers can use another one.

    Models with their own attention code (Longformer, BigBird, Reformer) do not.
    """

    code = "not-pluggable"
    example = """\
from edgewise import hf
hf.use(torch.nn.Linear(2, 2), window(3))"""
    instead = BERT + "hf.use(model, window(3))"


class NotAnAttention(EdgewiseError):
    """The attention of a model is a pattern, one per head or layer, or a program over q, k, v."""

    code = "not-an-attention"
    example = BERT + "hf.use(model, 3)"
    instead = BERT + "hf.use(model, window(3))"


class LayerMismatch(EdgewiseError):
    """`per_layer` has a pattern for each attention layer, `per_head` one for each query head."""

    code = "layer-mismatch"
    example = BERT + "hf.use(model, per_layer(window(1), window(2)))"
    instead = BERT + "hf.use(model, per_layer(window(1)))"


class UnsupportedArgument(EdgewiseError):
    """Arguments that a model passes to its attention are supported or refused, never ignored."""

    code = "unsupported-argument"
    example = (
        BERT
        + "hf.use(model, window(3))\n"
        + "model(torch.ones(1, 4).long(), cu_seq_lens_q=torch.tensor([0, 4]))"
    )
    instead = BERT + "hf.use(model, window(3))\nmodel(torch.ones(1, 4).long())"


class UnknownMask(EdgewiseError):
    """Causal, sliding-window, chunked, packed and padding masks are supported."""

    code = "unknown-mask"
    example = """\
from edgewise.hf.masks import read_mask_function
read_mask_function(lambda b, h, i, j: i > j)"""
    instead = """\
from transformers.masking_utils import causal_mask_function
from edgewise.hf.masks import read_mask_function
read_mask_function(causal_mask_function)"""


class NotAPrefix(EdgewiseError):
    """With a KV cache the pairs of earlier tokens must not depend on later ones."""

    code = "not-a-prefix"
    example = """\
from edgewise.hf.graph_attention import check_prefix
check_prefix(bigbird(block=2, seed=0))"""
    instead = """\
from edgewise.hf.graph_attention import check_prefix
check_prefix(causal() & window(3))"""


class EvictedKeys(EdgewiseError):
    """A growing cache retains the keys that later tokens attend to: others cannot come back."""

    code = "evicted-keys"
    example = f"""{GPT}\
hf.use(model, window(2) & causal())
past = model(torch.ones(1, 8).long()).past_key_values
hf.use(model, window(4) & causal())
model(torch.ones(1, 1).long(), past_key_values=past)"""
    instead = f"""{GPT}\
hf.use(model, window(4) & causal())
past = model(torch.ones(1, 8).long()).past_key_values
model(torch.ones(1, 1).long(), past_key_values=past)"""


class BadProgram(EdgewiseError):
    """A program used as attention reads q, k and v and derives a row per query."""

    code = "bad-program"
    example = f"""{BERT}\
hf.use(model.eval(), Program([R.out(V.I) <= R.v(V.H, V.I)]))
model(torch.ones(1, 4).long())"""
    instead = BERT + "hf.use(model, Program([R.out(V.H, V.I) <= R.v(V.H, V.I)]))"


class MissingRelation(EdgewiseError):
    """A program that reads more than q, k and v gets it with every batch, by name."""

    code = "missing-relation"
    example = (
        BERT
        + f"""{ARCS}
hf.use(model, program)(torch.ones(1, 4).long())"""
    )
    instead = (
        BERT
        + f"""{ARCS}
hf.use(model, program)(torch.ones(1, 4).long(), arc=torch.tensor([[[0, 1, 2], [1, 2, 3]]]))"""
    )


class BadRelation(EdgewiseError):
    """A relation of the batch has the samples and tokens of the batch."""

    code = "bad-relation"
    example = (
        BERT
        + f"""{ARCS}
hf.use(model, program)(torch.ones(1, 4).long(), arc=torch.tensor([[[0, 1, 2], [1, 2, 9]]]))"""
    )
    instead = (
        BERT
        + f"""{ARCS}
hf.use(model, program)(torch.ones(1, 4).long(), arc=torch.tensor([[[0, 1, 2], [1, 2, -1]]]))"""
    )


class UnknownPart(EdgewiseError):
    """A part of a model is the name of a module, as `named_modules` lists them, with attention."""

    code = "unknown-part"
    example = BERT + 'hf.use(model, {"decoder": window(3)})'
    instead = BERT + 'hf.use(model, {"encoder": window(3)})'


class NotAnImageModel(EdgewiseError):
    """Neighbourhoods of patches need the sizes of the image and of a patch."""

    code = "not-an-image-model"
    example = BERT + "hf.neighbourhood(model, 1)"
    instead = BERT + "hf.use(model, window(1))"


class NoPositions(EdgewiseError):
    """`longer` needs a learned position table or rotary embeddings."""

    code = "no-positions"
    example = BERT + "hf.longer(model, 100, window(3))"
    instead = BERT + "hf.longer(model, 1024, window(3))"


class TooManyTokens(EdgewiseError):
    """A model with learned positions has a fixed number of them."""

    code = "too-many-tokens"
    example = f"""{GPT}\
hf.use(model, window(3))
model(torch.ones(1, 20).long())"""
    instead = f"""{GPT}\
hf.longer(model, 20, window(3))
model(torch.ones(1, 20).long())"""


class NotSaved(EdgewiseError):
    """A config stores a graph or program as text: Python functions and long lists have none."""

    code = "not-saved"
    example = f"""{BERT}\
model.config.edgewise = {{}}
hf.graph_of(model)"""
    instead = f"""{BERT}\
import tempfile
hf.use(model, window(3)).save_pretrained(folder := tempfile.mkdtemp())
hf.load(folder)"""


class LostGraph(EdgewiseError):
    """A model with a graph is not computed without it: its numbers would be those of another model.

    `attn_implementation="sdpa"` of transformers would drop the graph.
    """

    code = "lost-graph"
    example = f"""{BERT}\
hf.use(model, window(3)).set_attn_implementation("sdpa")
model(torch.zeros(1, 4, dtype=torch.long))"""
    instead = f"""{BERT}\
hf.restore(hf.use(model, window(3))).set_attn_implementation("sdpa")
model(torch.zeros(1, 4, dtype=torch.long))"""


class GraphNotSaved(EdgewiseWarning):
    """Python functions in rules and long lists of edges have no text that a config could store."""

    code = "graph-not-saved"
    example = f"""{BERT}\
import tempfile
rule = (R.out(V.H, V.I) <= R.v(V.H, V.I)) | [F.call(abs)]
hf.use(model, Program([rule])).save_pretrained(tempfile.mkdtemp())"""
    instead = f"""{BERT}\
import tempfile
rule = (R.out(V.H, V.I) <= R.v(V.H, V.I)) | [F.abs]
hf.use(model, Program([rule])).save_pretrained(tempfile.mkdtemp())"""


class PartNotSaved(EdgewiseWarning):
    """A graph set on part of a model is not saved with the larger one: its config is its own."""

    code = "part-not-saved"
    example = f"""{BERT.replace("BertModel", "BertForMaskedLM")}\
import tempfile
hf.use(model.bert, window(3))
model.save_pretrained(tempfile.mkdtemp())"""
    instead = f"""{BERT.replace("BertModel", "BertForMaskedLM")}\
import tempfile
hf.use(model, window(3))
model.save_pretrained(tempfile.mkdtemp())"""
