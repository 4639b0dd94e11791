"""The second eigenvalue, which bounds the mixing time of random walks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints
from edgewise.measures.quotient import MatVec, QuotientGraph, cell_size, density_map

SMALL, MIDDLE = 400, 1500  # nodes, for a dense solver at first, and as the last resort
ENOUGH = 1e-4
CLOSE = 1e-3  # to 1, where Lanczos tells neighbouring eigenvalues apart too slowly
WIDEST = 512  # bandwidth, for a banded one
EFFORT = 500_000_000
MOST_STEPS = 600
CELLS = 128
Operator = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SecondEigenvalue:
    """The second eigenvalue of D^-½ A D^-½, and its accuracy."""

    value: float
    how: str


def second_eigenvalue(graph: QuotientGraph, among: Ints) -> SecondEigenvalue | None:
    """The second eigenvalue of a component `among` of a listed symmetric graph."""
    size, loop = graph.size[among].astype(float), graph.loop[among].astype(float)
    if size.sum() < 2:
        return None
    degree = graph.degree[among]
    inner = np.where(size > 1, -loop / degree, -np.inf).max()  # eigenvectors that differ on twins
    if len(among) == 1:
        return SecondEigenvalue(float(inner), "exact")
    scaled = _scaled(graph.matrix[among][:, among], size, loop, degree)
    top = np.sqrt(size * degree / (size * degree).sum())
    found = _dense(scaled) if len(among) <= SMALL else _solved(scaled, top)
    return SecondEigenvalue(max(found.value, float(inner)), found.how)


def _scaled(matrix: Any, size: np.ndarray, loop: np.ndarray, degree: np.ndarray) -> Any:
    """D^-½ A D^-½ on vectors that are constant on twins."""
    from scipy.sparse import diags_array

    side = diags_array(np.sqrt(size / degree))
    return (side @ matrix @ side - diags_array(loop / degree)).tocsr()


def _dense(scaled: Any) -> SecondEigenvalue:
    return SecondEigenvalue(float(np.linalg.eigvalsh(scaled.toarray())[-2]), "exact")


def _solved(scaled: Any, top: np.ndarray) -> SecondEigenvalue:
    def times(x: np.ndarray) -> np.ndarray:
        return np.asarray(scaled @ x)

    found = lanczos(times, top, scaled.nnz)
    if found.value < 1 - CLOSE and found.converged:
        return found.described
    inverted = _banded(scaled, top)
    if inverted is not None:
        return inverted
    return _dense(scaled) if len(top) <= MIDDLE else found.described


@dataclass(frozen=True)
class Ritz:
    """The largest Ritz value, never above the eigenvalue; `rest` bounds how far one is from it."""

    value: float
    rest: float
    steps: int

    @property
    def converged(self) -> bool:
        return self.rest < min(ENOUGH, (1 - self.value) / 100)

    @property
    def described(self) -> SecondEigenvalue:
        if self.converged:
            return SecondEigenvalue(self.value, "exact to 1e-4: Lanczos")
        return SecondEigenvalue(
            self.value, f"bound: at least, Rayleigh–Ritz, {self.steps} Lanczos steps"
        )


def lanczos(times: Operator, top: np.ndarray, cost: int, start: np.ndarray | None = None) -> Ritz:
    """The largest eigenvalue orthogonal to `top`, by Lanczos' three-term recurrence.

    Without reorthogonalisation: the loss of orthogonality repeats Ritz values and does not change
    the largest (Paige 1976).
    """
    from scipy.linalg import eigh_tridiagonal

    steps = int(np.clip(EFFORT // (cost + 8 * len(top)), 30, min(MOST_STEPS, len(top) - 1)))
    x = _start(top) if start is None else start
    x = x - top * (top @ x)
    x, before = x / np.linalg.norm(x), np.zeros_like(x)
    diagonal, side = [], [0.0]
    found = Ritz(-1.0, np.inf, 0)
    for step in range(1, steps + 1):
        y = times(x) - side[-1] * before
        diagonal.append(float(x @ y))
        y -= diagonal[-1] * x
        y -= top * (top @ y)
        side.append(float(np.linalg.norm(y)))
        last = step == steps or side[-1] < 1e-12
        if step % 20 == 0 or last:
            value, vector = eigh_tridiagonal(
                diagonal, side[1:-1], select="i", select_range=(step - 1, step - 1)
            )
            found = Ritz(float(value[0]), float(side[-1] * abs(vector[-1, 0])), step)
        if last or found.converged:
            break
        x, before = y / side[-1], x
    return found


def _start(top: np.ndarray) -> np.ndarray:
    """A slow wave along the tokens plus noise."""
    n = len(top)
    noise = np.random.Generator(np.random.Philox(1)).standard_normal(n)
    return np.asarray(np.cos(np.pi * (np.arange(n) + 0.5) / n) * top * np.sqrt(n) + 0.3 * noise)


def _banded(scaled: Any, top: np.ndarray) -> SecondEigenvalue | None:
    """By inverse iteration, where a permutation of the nodes has a small bandwidth."""
    from scipy.linalg import cho_solve_banded, cholesky_banded
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(scaled, symmetric_mode=True)
    moved = coo_array(scaled[order][:, order])
    i, j = moved.coords
    width = int(np.abs(i - j).max(initial=0))
    if width > WIDEST:
        return None
    shift = 1e-11
    bands = np.zeros((width + 1, len(top)))
    lower = i >= j
    bands[(i - j)[lower], j[lower]] = -moved.data[lower]
    bands[0] += 1 + shift
    factor = cholesky_banded(bands, lower=True, overwrite_ab=True, check_finite=False)
    side = top[order]

    def inverse(x: np.ndarray) -> np.ndarray:
        x = x - side * (side @ x)
        y = cho_solve_banded((factor, True), x, check_finite=False)
        return y - side * (side @ y)

    found = lanczos(inverse, side, 4 * bands.size)
    close = found.rest < ENOUGH * found.value
    value = 1 + shift - 1 / found.value
    return SecondEigenvalue(value, "exact to 1e-4: banded inverse") if close else None


def second_eigenvalue_by_matvec(rows: Rows, among: Ints, loop: np.ndarray) -> SecondEigenvalue:
    """The second eigenvalue of a symmetric graph too dense to list."""
    product = MatVec(rows)
    inside = np.zeros(rows.n)
    inside[among] = 1
    degree = product(np.ones(rows.n)) - loop
    side = np.where(inside > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    top = inside * np.sqrt(degree)
    top /= np.linalg.norm(top)

    def times(x: np.ndarray) -> np.ndarray:
        return side * (product(side * x) - loop * (side * x))

    return lanczos(times, top, product.cost, _by_blocks(rows, top)).described


def _by_blocks(rows: Rows, top: np.ndarray) -> np.ndarray:
    """The second eigenvector of the graph of blocks, interpolated to tokens."""
    count = density_map(rows, CELLS)
    block = cell_size(rows.n, CELLS)
    mass = np.add.reduceat(top**2, np.arange(0, rows.n, block))
    some = mass > 0
    weight = np.where(some, 1 / np.sqrt(np.maximum(mass, 1e-300)), 0)
    _, vectors = np.linalg.eigh(weight[:, None] * count * weight[None, :])
    blocks = vectors[:, -2] * weight
    middle = np.arange(len(blocks)) * block + (block - 1) / 2
    return np.interp(np.arange(rows.n), middle, blocks) * top
