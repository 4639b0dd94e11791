"""How pairs sit in memory: rows (the normal form), columns, CSR and blocks."""

from edgewise.layouts.blocks import Blocks, blocks_of_rows
from edgewise.layouts.composition import (
    by_residue,
    common_step,
    composed,
    power,
    residue_order,
    transposed,
)
from edgewise.layouts.membership import Membership, RowTable, membership_test
from edgewise.layouts.rows import (
    CSR,
    Rows,
    compressed,
    csr_of_rows,
    rows_of_blocks,
    rows_of_keys,
    rows_of_pairs,
    with_pairs,
)
from edgewise.layouts.sweep import AND, MINUS, NOT, NOTHING, OR, combine, fold, rows_of_trapezoids
from edgewise.layouts.trapezoid import Trapezoids, joined, trapezoids

__all__ = [
    "AND",
    "CSR",
    "MINUS",
    "NOT",
    "NOTHING",
    "OR",
    "Blocks",
    "Membership",
    "RowTable",
    "Rows",
    "Trapezoids",
    "blocks_of_rows",
    "by_residue",
    "combine",
    "common_step",
    "composed",
    "compressed",
    "csr_of_rows",
    "fold",
    "joined",
    "membership_test",
    "power",
    "residue_order",
    "rows_of_blocks",
    "rows_of_keys",
    "rows_of_pairs",
    "rows_of_trapezoids",
    "transposed",
    "trapezoids",
    "with_pairs",
]
