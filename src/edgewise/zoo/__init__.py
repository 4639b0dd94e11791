"""Models as rules, one file each: the rules, a `Config`, the paper and what it is equal to.

>>> from edgewise import zoo
>>> zoo.gcn.program(zoo.gcn.Config(inputs=8, outputs=4)).rules[-1]
R.out(V.I) <= (R.aggregated(V.I), W.bias[4,].filled(0.0))
"""

from edgewise.zoo import (
    adaptive_span,
    albert,
    bert,
    bigbird,
    bp_transformer,
    compressive,
    convolution,
    convs2s,
    deberta,
    electra,
    encoder,
    gat,
    gatv2,
    gcn,
    gin,
    gpt,
    gpt2,
    graphsage,
    llama,
    longformer,
    megatron,
    mixing,
    parts,
    phi,
    reformer,
    rgcn,
    rnn,
    sparse,
    t5,
    transformer,
    transformer_xl,
    vit,
    xlnet,
)
from edgewise.zoo.pretrained import Pretrained, fetch, from_pretrained, save_pretrained

__all__ = [
    "Pretrained",
    "adaptive_span",
    "albert",
    "bert",
    "bigbird",
    "bp_transformer",
    "compressive",
    "convolution",
    "convs2s",
    "deberta",
    "electra",
    "encoder",
    "fetch",
    "from_pretrained",
    "gat",
    "gatv2",
    "gcn",
    "gin",
    "gpt",
    "gpt2",
    "graphsage",
    "llama",
    "longformer",
    "megatron",
    "mixing",
    "parts",
    "phi",
    "reformer",
    "rgcn",
    "rnn",
    "save_pretrained",
    "sparse",
    "t5",
    "transformer",
    "transformer_xl",
    "vit",
    "xlnet",
]

TRANSFORMERS = (
    *(transformer, bert, electra, albert, gpt, gpt2, llama, phi, t5, vit, deberta, megatron, xlnet),
    *(longformer, bigbird, sparse),
    *(transformer_xl, compressive, adaptive_span, bp_transformer, reformer),
)
GRAPHS = (gcn, graphsage, gin, gat, gatv2, rgcn)
WITHOUT_ATTENTION = (mixing, convolution, convs2s)
MODELS = (encoder, *GRAPHS, *TRANSFORMERS, *WITHOUT_ATTENTION, rnn)
