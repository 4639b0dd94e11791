"""Attention graphs: an algebra of sets of pairs (i, j), where query i hears key j."""

from edgewise.graphs.barabasi_albert import barabasi_albert as barabasi_albert
from edgewise.graphs.bigbird import bigbird as bigbird
from edgewise.graphs.binary_partition import binary_partition as binary_partition
from edgewise.graphs.blocks import blocks as blocks
from edgewise.graphs.causal import causal as causal
from edgewise.graphs.dilated import dilated as dilated
from edgewise.graphs.documents import documents as documents
from edgewise.graphs.erdos_renyi import erdos_renyi as erdos_renyi
from edgewise.graphs.expander import expander as expander
from edgewise.graphs.extra_global_tokens import extra_global_tokens as extra_global_tokens
from edgewise.graphs.families import per_head as per_head
from edgewise.graphs.families import per_layer as per_layer
from edgewise.graphs.families import per_sample as per_sample
from edgewise.graphs.fixed import fixed as fixed
from edgewise.graphs.from_blocks import from_block_mask as from_block_mask
from edgewise.graphs.from_blocks import from_blocks as from_blocks
from edgewise.graphs.from_edges import from_dense as from_dense
from edgewise.graphs.from_edges import from_edges as from_edges
from edgewise.graphs.from_edges import from_networkx as from_networkx
from edgewise.graphs.from_edges import from_pyg as from_pyg
from edgewise.graphs.from_edges import from_scipy as from_scipy
from edgewise.graphs.full import full as full
from edgewise.graphs.global_tokens import global_tokens as global_tokens
from edgewise.graphs.longformer import longformer as longformer
from edgewise.graphs.longformer import longformer_layers as longformer_layers
from edgewise.graphs.lsh import lsh as lsh
from edgewise.graphs.lsh import lsh_of as lsh_of
from edgewise.graphs.pattern import Pattern as Pattern
from edgewise.graphs.pictures import compare as compare
from edgewise.graphs.prefix import prefix as prefix
from edgewise.graphs.random_blocks import random_blocks as random_blocks
from edgewise.graphs.random_edges import random_edges as random_edges
from edgewise.graphs.ring import ring as ring
from edgewise.graphs.sparse_transformer import sparse_transformer as sparse_transformer
from edgewise.graphs.strided import strided as strided
from edgewise.graphs.syntax import syntax as syntax
from edgewise.graphs.text import Readable, parsed
from edgewise.graphs.tree import tree as tree
from edgewise.graphs.watts_strogatz import watts_strogatz as watts_strogatz
from edgewise.graphs.window import window as window

PATTERNS: dict[str, type[Pattern]] = {
    name: thing
    for name, thing in list(globals().items())
    if isinstance(thing, type) and issubclass(thing, Pattern) and thing is not Pattern
}


def parse(text: str) -> Readable:
    """The pattern that a text says, such as the command line's: `repr(parse(s))` reads back as it.

    >>> parse("causal() & (window(2) | global_tokens(1))").count(4)
    10
    """
    families = {"per_head": per_head, "per_sample": per_sample, "per_layer": per_layer}
    return parsed(text, {**PATTERNS, **families})
