"""Modules: rules under the names of their inputs and outputs."""

from edgewise.neuralogic.nn.module.attention import (
    Attention,
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
)
from edgewise.neuralogic.nn.module.general import (
    MLP,
    AvgPooling,
    Linear,
    MaxPooling,
    Pooling,
    PositionalEncoding,
    RvNN,
    SumPooling,
)
from edgewise.neuralogic.nn.module.gnn import (
    APPNPConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    ResGatedGraphConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TAGConv,
)
from edgewise.neuralogic.nn.module.meta import MAGNNLinear, MAGNNMean, MetaConv
from edgewise.neuralogic.nn.module.module import Module
from edgewise.neuralogic.nn.module.recurrent import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "RNN",
    "APPNPConv",
    "Attention",
    "AvgPooling",
    "GATv2Conv",
    "GCNConv",
    "GENConv",
    "GINConv",
    "GINEConv",
    "Linear",
    "MAGNNLinear",
    "MAGNNMean",
    "MaxPooling",
    "MetaConv",
    "Module",
    "MultiheadAttention",
    "Pooling",
    "PositionalEncoding",
    "RGCNConv",
    "ResGatedGraphConv",
    "RvNN",
    "SAGEConv",
    "SGConv",
    "SumPooling",
    "TAGConv",
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
]
