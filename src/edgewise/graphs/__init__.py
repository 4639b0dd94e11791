"""Attention graphs: an algebra of sets of pairs (i, j), where query i hears key j."""

from edgewise.graphs.blocks import blocks
from edgewise.graphs.causal import causal
from edgewise.graphs.dilated import dilated
from edgewise.graphs.documents import documents
from edgewise.graphs.extra_global_tokens import extra_global_tokens
from edgewise.graphs.families import per_head, per_layer
from edgewise.graphs.fixed import fixed
from edgewise.graphs.full import full
from edgewise.graphs.global_tokens import global_tokens
from edgewise.graphs.longformer import longformer, longformer_layers
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.prefix import prefix
from edgewise.graphs.ring import ring
from edgewise.graphs.sparse_transformer import sparse_transformer
from edgewise.graphs.strided import strided
from edgewise.graphs.window import window
from edgewise.graphs.random_edges import random_edges
from edgewise.graphs.erdos_renyi import erdos_renyi
from edgewise.graphs.watts_strogatz import watts_strogatz
from edgewise.graphs.barabasi_albert import barabasi_albert
from edgewise.graphs.random_blocks import random_blocks
from edgewise.graphs.expander import expander
