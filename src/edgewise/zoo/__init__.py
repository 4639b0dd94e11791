"""Models as rules, one file each: the rules, a `Config`, the paper and what it is equal to.

>>> from edgewise import zoo
>>> zoo.gcn.program(zoo.gcn.Config(inputs=8, outputs=4)).rules[-1]
R.out(V.I) <= (R.aggregated(V.I), W.bias[4,].filled(0.0))
"""

from edgewise.zoo import adaptive_span as adaptive_span
from edgewise.zoo import bert as bert
from edgewise.zoo import bigbird as bigbird
from edgewise.zoo import bp_transformer as bp_transformer
from edgewise.zoo import compressive as compressive
from edgewise.zoo import convolution as convolution
from edgewise.zoo import convs2s as convs2s
from edgewise.zoo import deberta as deberta
from edgewise.zoo import encoder as encoder
from edgewise.zoo import gat as gat
from edgewise.zoo import gatv2 as gatv2
from edgewise.zoo import gcn as gcn
from edgewise.zoo import gin as gin
from edgewise.zoo import gpt2 as gpt2
from edgewise.zoo import graphsage as graphsage
from edgewise.zoo import llama as llama
from edgewise.zoo import longformer as longformer
from edgewise.zoo import megatron as megatron
from edgewise.zoo import mixing as mixing
from edgewise.zoo import parts as parts
from edgewise.zoo import reformer as reformer
from edgewise.zoo import rgcn as rgcn
from edgewise.zoo import rnn as rnn
from edgewise.zoo import sparse as sparse
from edgewise.zoo import t5 as t5
from edgewise.zoo import transformer as transformer
from edgewise.zoo import transformer_xl as transformer_xl
from edgewise.zoo import vit as vit
from edgewise.zoo import xlnet as xlnet
from edgewise.zoo.pretrained import fetch as fetch
from edgewise.zoo.pretrained import from_pretrained as from_pretrained
from edgewise.zoo.pretrained import save_pretrained as save_pretrained

TRANSFORMERS = (
    *(transformer, bert, gpt2, llama, t5, vit, deberta, megatron, xlnet),
    *(longformer, bigbird, sparse),
    *(transformer_xl, compressive, adaptive_span, bp_transformer, reformer),
)
GRAPHS = (gcn, graphsage, gin, gat, gatv2, rgcn)
WITHOUT_ATTENTION = (mixing, convolution, convs2s)
MODELS = (encoder, *GRAPHS, *TRANSFORMERS, *WITHOUT_ATTENTION, rnn)
