"""How pairs sit in memory: rows (the normal form), columns, CSR and blocks."""

from edgewise.layouts.blocks import Blocks
from edgewise.layouts.columns import transposed
from edgewise.layouts.compress import compressed
from edgewise.layouts.cover import blocks_of_rows
from edgewise.layouts.csr import CSR, csr_of_rows
from edgewise.layouts.hops import composed, power
from edgewise.layouts.membership import Membership, RowTable, membership
from edgewise.layouts.pieces import Pieces, joined, pieces
from edgewise.layouts.residues import by_residue, common_step, residue_order
from edgewise.layouts.rows import Rows, rows_of_blocks, rows_of_keys, rows_of_pairs, with_pairs
from edgewise.layouts.sweep import AND, MINUS, NOT, NOTHING, OR, combine, folded, rows_of_pieces

__all__ = [
    "AND",
    "CSR",
    "MINUS",
    "NOT",
    "NOTHING",
    "OR",
    "Blocks",
    "Membership",
    "Pieces",
    "RowTable",
    "Rows",
    "blocks_of_rows",
    "by_residue",
    "combine",
    "common_step",
    "composed",
    "compressed",
    "csr_of_rows",
    "folded",
    "joined",
    "membership",
    "pieces",
    "power",
    "residue_order",
    "rows_of_blocks",
    "rows_of_keys",
    "rows_of_pairs",
    "rows_of_pieces",
    "transposed",
    "with_pairs",
]
