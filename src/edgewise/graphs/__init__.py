"""Attention graphs: an algebra of sets of pairs (i, j), where query i hears key j."""

from edgewise.graphs.barabasi_albert import barabasi_albert
from edgewise.graphs.bigbird import bigbird
from edgewise.graphs.binary_partition import binary_partition
from edgewise.graphs.blocks import blocks
from edgewise.graphs.causal import causal
from edgewise.graphs.dilated import dilated
from edgewise.graphs.documents import documents
from edgewise.graphs.erdos_renyi import erdos_renyi
from edgewise.graphs.expander import expander
from edgewise.graphs.extra_global_tokens import extra_global_tokens
from edgewise.graphs.families import per_head, per_layer
from edgewise.graphs.fixed import fixed
from edgewise.graphs.from_blocks import from_block_mask, from_blocks
from edgewise.graphs.from_edges import (
    from_dense,
    from_edges,
    from_networkx,
    from_pyg,
    from_scipy,
)
from edgewise.graphs.full import full
from edgewise.graphs.global_tokens import global_tokens
from edgewise.graphs.longformer import longformer, longformer_layers
from edgewise.graphs.lsh import lsh, lsh_of
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.prefix import prefix
from edgewise.graphs.random_blocks import random_blocks
from edgewise.graphs.random_edges import random_edges
from edgewise.graphs.ring import ring
from edgewise.graphs.sparse_transformer import sparse_transformer
from edgewise.graphs.strided import strided
from edgewise.graphs.syntax import syntax
from edgewise.graphs.text import Readable, parsed
from edgewise.graphs.tree import tree
from edgewise.graphs.watts_strogatz import watts_strogatz
from edgewise.graphs.window import window

PATTERNS: tuple[type[Pattern], ...] = (
    barabasi_albert,
    bigbird,
    binary_partition,
    blocks,
    causal,
    dilated,
    documents,
    erdos_renyi,
    expander,
    extra_global_tokens,
    fixed,
    from_blocks,
    from_edges,
    full,
    global_tokens,
    longformer,
    lsh,
    prefix,
    random_blocks,
    random_edges,
    ring,
    sparse_transformer,
    strided,
    syntax,
    tree,
    watts_strogatz,
    window,
)


def parse(text: str) -> Readable:
    """The pattern that a text says, such as the command line's: `str(parse(s))` reads back as it.

    >>> parse("causal() & (window(2) | global_tokens(1))").count(4)
    10
    """
    names = {pattern.__name__: pattern for pattern in PATTERNS}
    return parsed(text, {**names, "per_head": per_head, "per_layer": per_layer})


__all__ = [
    "PATTERNS",
    "Pattern",
    "barabasi_albert",
    "bigbird",
    "binary_partition",
    "blocks",
    "causal",
    "dilated",
    "documents",
    "erdos_renyi",
    "expander",
    "extra_global_tokens",
    "fixed",
    "from_block_mask",
    "from_blocks",
    "from_dense",
    "from_edges",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "full",
    "global_tokens",
    "longformer",
    "longformer_layers",
    "lsh",
    "lsh_of",
    "parse",
    "per_head",
    "per_layer",
    "prefix",
    "random_blocks",
    "random_edges",
    "ring",
    "sparse_transformer",
    "strided",
    "syntax",
    "tree",
    "watts_strogatz",
    "window",
]
