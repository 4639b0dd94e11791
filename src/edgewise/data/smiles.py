"""Molecules written as SMILES, read by RDKit: `atom(I)` and `bond(I, J)`, each molecule a sample.

atom(I)       element, one of `ELEMENTS` or another; degree, charge, hydrogens, aromatic, in a ring
bond(I, J)    single, double, triple or aromatic; conjugated, in a ring; both ways
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from edgewise.data.dataset import Dataset, Labels
from edgewise.data.errors import BadLine
from edgewise.errors import Span, caller, iterates, safe_repr
from edgewise.graphs.drawing import require_package
from edgewise.inputs.kinds import ragged, rows

ELEMENTS = ("C", "N", "O", "F", "P", "S", "Cl", "Br", "I", "H", "B", "Si")
ATOM = (*ELEMENTS, "other", "degree", "charge", "hydrogens", "aromatic", "ring")
BOND = ("single", "double", "triple", "aromatic", "conjugated", "ring")
KINDS = {1.0: 0, 2.0: 1, 3.0: 2, 1.5: 3}  # order of a bond → its place


def molecules(
    smiles: Sequence[str],
    labels: Iterable[float] | None = None,
    *,
    hydrogens: bool = False,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """A batch of molecules; `hydrogens` adds the implicit ones as atoms.

    >>> found = molecules(["CCO", "c1ccccc1"])
    >>> found.inputs["atom"].samples[1].shape, found.inputs["bond"].samples[0].keys.tolist()
    (torch.Size([6, 18]), [[0, 1, 1, 2], [1, 0, 2, 1]])
    """
    if isinstance(smiles, str) or not iterates(smiles):
        raise BadLine(
            f"molecules are {safe_repr(smiles)}", caller(), 'give a list: `molecules(["CCO"])`'
        )
    if hasattr(smiles, "columns") or isinstance(smiles, Mapping):
        raise BadLine(
            f"molecules are a table, {type(smiles).__name__}",
            caller(),
            'give the column that has them: `molecules(table["smiles"])`',
        )
    require_package("rdkit")
    from rdkit import Chem, rdBase

    dtype = dtype or torch.get_default_dtype()
    atoms, bonds = [], []
    block = rdBase.BlockLogs()  # our error says it
    try:
        for number, text in enumerate(smiles, start=1):
            molecule = Chem.MolFromSmiles(text) if isinstance(text, str) and text.strip() else None
            if molecule is None:
                raise _unreadable(number, text)
            molecule = Chem.AddHs(molecule) if hydrogens else molecule
            atoms.append(torch.tensor([_atom(a) for a in molecule.GetAtoms()], dtype=dtype))
            bonds.append(_bonds(molecule.GetBonds(), dtype))
    finally:
        del block
    found: dict[str, Labels] = {}
    if labels is not None:
        try:
            values = torch.tensor([float(label) for label in labels])
        except (TypeError, ValueError):
            raise BadLine("a label is not a number", caller(), "give numbers") from None
        if len(values) != len(atoms):
            raise BadLine(
                f"{len(atoms)} molecules, but {len(values)} labels", caller(), "give one for each"
            )
        found["molecule"] = Labels(torch.arange(len(atoms))[None], values)
    return Dataset({"atom": ragged(atoms), "bond": ragged(bonds)}, labels=found)


def _unreadable(number: int, text: Any) -> BadLine:
    shown = text if isinstance(text, str) else repr(text)
    what = f"molecule {number:,} is not SMILES: `{shown[:80]}`"
    place = Span("<smiles>", number, 1, len(shown) + 1, source=shown or " ")
    return BadLine(what, place, "close its rings and brackets; valences must fit")


def _atom(atom: Any) -> list[float]:
    symbol = atom.GetSymbol()
    place = ELEMENTS.index(symbol) if symbol in ELEMENTS else len(ELEMENTS)
    element = [float(place == at) for at in range(len(ELEMENTS) + 1)]
    rest = atom.GetDegree(), atom.GetFormalCharge(), atom.GetTotalNumHs()
    return [*element, *map(float, rest), float(atom.GetIsAromatic()), float(atom.IsInRing())]


def _bonds(bonds: Any, dtype: torch.dtype) -> rows:
    keys: list[tuple[int, int]] = []
    values: list[list[float]] = []
    for bond in bonds:
        a, b = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        place = KINDS.get(bond.GetBondTypeAsDouble())
        kind = [float(place == at) for at in range(len(KINDS))]
        value = [*kind, float(bond.GetIsConjugated()), float(bond.IsInRing())]
        keys += [(a, b), (b, a)]
        values += [value, value]
    index = torch.tensor(keys, dtype=torch.int64).reshape(-1, 2).T
    return rows(index, torch.tensor(values, dtype=dtype).reshape(-1, len(BOND)))
