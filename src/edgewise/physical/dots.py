"""Dot products of rows of two relations: products of matrices, of which groundings take numbers.

A score of distances, `aᵢⱼ = qᵢ · r(i - j)`, has a grounding for each pair and as many numbers in
q · rᵀ; written out, each grounding would read two vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.ground.index import Grid
from edgewise.ground.rules import GroundRule
from edgewise.language import nodes
from edgewise.language.statements import atoms, combination, weights
from edgewise.language.terms import variables
from edgewise.layouts.segments import Segments
from edgewise.physical.column import Column

MANY = 1 << 12  # groundings, below which writing them out is as good
MORE = 2  # numbers in the products for each grounding, at most
PART = 8  # or one for as many features of a row: two rows of them would be written out
MOST = 16  # however many those are
SOME = 64  # groundings, which mostly tell already that rows are in no blocks


@dataclass(frozen=True, eq=False)
class Dots:
    """`index` says which number of the products each grounding takes.

    Rows of both sides come in `blocks`, and those of one block meet each other only.
    """

    blocks: int
    index: Tensor
    each: float  # numbers in the products for each grounding

    def __call__(self, left: Column, right: Column) -> Column | None:
        """The dot product in each grounding; None if these are not rows and columns, or short."""
        if left.rank != 2 or right.rank != 1 or left.shape != (1, *right.shape):
            return None
        if self.each > max(MORE, right.shape[0] / PART):
            return None
        a = left.data.squeeze(2).unflatten(1, (self.blocks, -1))
        b = right.data.unflatten(1, (self.blocks, -1))
        return Column((b @ a.mT).flatten(1).index_select(1, self.index))


def pairs_in(rule: nodes.Rule) -> Iterator[tuple[int, Sequence[nodes.Expression]]]:
    """Two expressions that a rule multiplies, and the identity of their product: 0 if it is all
    that its groundings are."""
    values = [item for item in rule.body if item.carries_value]
    if len(values) == 2 and combination(rule.functions).name == "product":
        yield 0, values
    while values:
        item = values.pop()
        if isinstance(item, nodes.Apply):
            values += item.operands
            if item.function.name == "product" and len(item.operands) == 2:
                yield id(item), item.operands


@dataclass(frozen=True, eq=False)
class Operand:
    """An expression with one grounding for each row of the atom that decides all of it."""

    item: nodes.Expression
    ground: GroundRule
    rows: Tensor  # which of them each grounding of the rule reads


def operand(item: nodes.Expression, ground: GroundRule) -> Operand | None:
    """None where no atom decides an expression, or its rows are the groundings."""
    found = list(atoms(item))
    if any(weight.keys for weight in weights(item)) or not found:
        return None
    if not all(isinstance(atom, nodes.Atom) for atom in found):
        return None
    names = {v.name for atom in found for v in variables(atom.terms)}
    owner = next((a for a in found if names == {v.name for v in variables(a.terms)}), None)
    at = [next(n for n, literal in enumerate(ground.body.literals) if literal is a) for a in found]
    if owner is None:
        return None
    own = at[found.index(owner)]
    rows, size = ground.rows.get(own), ground.sizes.get(own)
    if rows is None or size is None or size >= ground.count:
        return None
    chosen: dict[int, Tensor | None] = {own: None}
    for other in at:
        if other != own:
            read = ground.rows[other]
            read = torch.arange(ground.count) if read is None else read
            chosen[other] = each = torch.zeros(size, dtype=torch.int64).index_copy(0, rows, read)
            if not torch.equal(each[rows], read):
                return None
    own_rows = Segments(size, torch.arange(size), 1)
    sizes = {place: ground.sizes[place] for place in chosen}
    inner = GroundRule(ground.body, size, chosen, {}, Grid((size,)), own_rows, sizes=sizes)
    return Operand(item, inner, rows)


def dots_of(left: Operand, right: Operand) -> Dots | None:
    """How groundings take their dot products, if the products hold few numbers more."""
    count = len(left.rows)
    many, others = left.ground.count, right.ground.count
    if count < MANY:
        return None
    for blocks in _divisors(math.gcd(many, others)):
        each = many * others / (blocks * count)
        if each > max(MORE, MOST):
            return None  # fewer blocks are larger
        a, b = many // blocks, others // blocks
        if not torch.equal(left.rows[:SOME] // a, right.rows[:SOME] // b):
            continue
        block = left.rows // a
        if torch.equal(block, right.rows // b):
            return Dots(blocks, (block * b + right.rows % b) * a + left.rows % a, each)
    return None


def _divisors(number: int) -> Iterator[int]:
    """From the largest on."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    yield from (number // n for n in small)
    yield from (n for n in reversed(small) if n * n != number)
