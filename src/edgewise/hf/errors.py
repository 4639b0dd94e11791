"""Errors of attention in Hugging Face models."""

from edgewise.errors import EdgewiseError, EdgewiseWarning

TINY = "hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8"
BERT = f"""\
from transformers import BertConfig, BertModel
from edgewise import hf
model = BertModel(BertConfig(vocab_size=9, {TINY}))
"""


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
        BERT + "hf.use(model, window(3))\nmodel(torch.ones(1, 4).long(), output_attentions=True)"
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


class BadProgram(EdgewiseError):
    """A program used as attention reads q, k and v and derives a row per query."""

    code = "bad-program"
    example = BERT + "hf.use(model, Program([R.out(V.H, V.I) <= R.values(V.H, V.I)]))"
    instead = BERT + "hf.use(model, Program([R.out(V.H, V.I) <= R.v(V.H, V.I)]))"


class NoPositions(EdgewiseError):
    """`longer` needs a learned position table or rotary embeddings."""

    code = "no-positions"
    example = BERT + "hf.longer(model, 100, window(3))"
    instead = BERT + "hf.longer(model, 1024, window(3))"


class NotSaved(EdgewiseError):
    """A config stores a graph or program as text: Python functions and long lists have none."""

    code = "not-saved"
    example = f"""{BERT}\
import tempfile
rule = (R.out(V.H, V.I) <= R.v(V.H, V.I)) | [F.call(abs)]
hf.use(model, Program([rule])).save_pretrained(folder := tempfile.mkdtemp())
hf.load(folder)"""
    instead = f"""{BERT}\
import tempfile
hf.use(model, window(3)).save_pretrained(folder := tempfile.mkdtemp())
hf.load(folder)"""


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
