"""How fast a walk on the graph forgets where it began: the second eigenvalue."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints
from edgewise.measures.density import cell_size, density_map
from edgewise.measures.product import Product
from edgewise.measures.twins import Twins

SMALL, MIDDLE = 400, 1500  # nodes, for a dense solver at once, and where no other finds it
CLOSE = 1e-3  # to 1, where Lanczos tells neighbouring eigenvalues apart too slowly
WIDEST = 512  # bandwidth, for a banded one
EFFORT = 600_000_000
CELLS = 128
LANCZOS = "exact to 1e-4: Lanczos"
Operator = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Second:
    """The second eigenvalue of D^-½ A D^-½, and how it was found."""

    value: float
    how: str


def second_of(graph: Twins, among: Ints) -> Second | None:
    """Of the nodes `among`, a component of a listed graph without direction."""
    size, loop = graph.size[among].astype(float), graph.loop[among].astype(float)
    if size.sum() < 2:
        return None
    degree = graph.degree[among]
    inner = np.where(size > 1, -loop / degree, -np.inf).max()  # vectors that differ among twins
    if len(among) == 1:
        return Second(float(inner), "exact")
    scaled = _scaled(graph.matrix[among][:, among], size, loop, degree)
    top = np.sqrt(size * degree / (size * degree).sum())
    found = _dense(scaled) if len(among) <= SMALL else _solved(scaled, top)
    return Second(max(found.value, float(inner)), found.how)


def _scaled(matrix: Any, size: np.ndarray, loop: np.ndarray, degree: np.ndarray) -> Any:
    """D^-½ A D^-½ on vectors that are constant on twins."""
    from scipy.sparse import diags_array

    side = diags_array(np.sqrt(size / degree))
    return (side @ matrix @ side - diags_array(loop / degree)).tocsr()


def _dense(scaled: Any) -> Second:
    return Second(float(np.linalg.eigvalsh(scaled.toarray())[-2]), "exact")


def _solved(scaled: Any, top: np.ndarray) -> Second:
    def times(x: np.ndarray) -> np.ndarray:
        return np.asarray(scaled @ x)

    least = smoothed(times, top, 4)
    found = lanczos(times, top, scaled.nnz) if least.value < 1 - CLOSE else None
    if found is not None and found < 1 - CLOSE:
        return Second(found, LANCZOS)
    inverted = _banded(scaled, top)
    if inverted is not None:
        return Second(inverted, "exact to 1e-4: banded inverse")
    if len(top) <= MIDDLE:
        return _dense(scaled)
    return smoothed(times, top, _steps(scaled.nnz))


def lanczos(times: Operator, top: np.ndarray, cost: int) -> float | None:
    """The largest eigenvalue beside that of `top`, or None if it does not come out in time."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    def below(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        return times(x) - top * (2.0 * (top @ x))  # moves the eigenvalue 1 of `top` to -1

    n, basis = len(top), 24
    restarts = int(np.clip(EFFORT // (basis * (cost + 2 * basis * n)), 4, 40))
    start = np.random.Generator(np.random.Philox(1)).standard_normal(n)
    matrix = LinearOperator((n, n), matvec=below, dtype=np.float64)
    try:
        found = eigsh(
            matrix, k=1, which="LA", v0=start, ncv=basis, maxiter=restarts, tol=1e-4,
            return_eigenvectors=False,
        )  # fmt: skip
    except ArpackNoConvergence:
        return None
    return float(found[0])


def _banded(scaled: Any, top: np.ndarray) -> float | None:
    """By inverse iteration, where an order of the nodes keeps all edges near the diagonal."""
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

    found = lanczos(inverse, side, bands.size)
    return None if found is None else float(1 + shift - 1 / found)


def second_by_products(rows: Rows, among: Ints, loop: np.ndarray) -> Second:
    """Of a graph without direction that is too dense to list."""
    product = Product(rows)
    inside = np.zeros(rows.n)
    inside[among] = 1
    degree = product(np.ones(rows.n)) - loop
    side = np.where(inside > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    top = inside * np.sqrt(degree)
    top /= np.linalg.norm(top)

    def times(x: np.ndarray) -> np.ndarray:
        return side * (product(side * x) - loop * (side * x))

    start = _by_blocks(rows, top)
    least = smoothed(times, top, 4, start)
    found = lanczos(times, top, product.cost) if least.value < 1 - CLOSE else None
    if found is not None:
        return Second(found, LANCZOS)
    return smoothed(times, top, _steps(product.cost), start)


def _by_blocks(rows: Rows, top: np.ndarray) -> np.ndarray:
    """The second eigenvector of the graph of blocks, spread over the tokens."""
    count = density_map(rows, CELLS)
    block = cell_size(rows.n, CELLS)
    mass = np.add.reduceat(top**2, np.arange(0, rows.n, block))
    some = mass > 0
    weight = np.where(some, 1 / np.sqrt(np.maximum(mass, 1e-300)), 0)
    _, vectors = np.linalg.eigh(weight[:, None] * count * weight[None, :])
    blocks = vectors[:, -2] * weight
    middle = np.arange(len(blocks)) * block + (block - 1) / 2
    return np.interp(np.arange(rows.n), middle, blocks) * top


def _steps(cost: int) -> int:
    return int(np.clip(EFFORT // (20 * max(cost, 1)), 20, 200))


def smoothed(
    times: Operator, top: np.ndarray, steps: int, start: np.ndarray | None = None
) -> Second:
    """The Rayleigh quotient of the best vector that some products find: never above the value."""
    n = len(top)
    x = np.cos(np.pi * (np.arange(n) + 0.5) / n) * top if start is None else start
    value = -1.0
    for _ in range(steps):
        x = x - top * (top @ x)
        x /= np.linalg.norm(x)
        y = times(x)
        value = max(value, float(x @ y))
        x = y + x  # the walk that rests every other step: no negative eigenvalue grows
    return Second(value, f"bound: at least, Rayleigh–Ritz, {steps} steps")
