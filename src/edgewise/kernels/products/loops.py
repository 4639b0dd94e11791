"""The loop of a few rows times a matrix, compiled by numba when first used."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

from numba import njit

from edgewise.kernels.prefetch import FAST


@njit(nogil=True, cache=True, fastmath=FAST)
def times(matrix, rows, out, first, last):
    """Columns first ≤ i < last of rows · matrixᵀ: a row of the matrix is read once for all."""
    for i in range(first, last):
        for r in range(rows.shape[0]):
            total = rows.dtype.type(0)
            for x in range(rows.shape[1]):
                total += matrix[i, x] * rows[r, x]
            out[r, i] = total
