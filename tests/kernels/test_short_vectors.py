"""Short vectors: every width, and exponentials of everything."""

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="numba is not installed")
from edgewise.kernels.simd_rows import adds, dots, exps, largest  # noqa: E402


@numba.njit(cache=True)
def _dots(out, a, b, width):
    dots(out, 1, 2, out.dtype.type(0.5), a, 3, 40, b, 5, 30, width, 2)


@numba.njit(cache=True)
def _adds(out, factor, a, width):
    adds(out, 4, 50, factor, 1, 3, a, 2, 45, width, 2)


@numba.njit(cache=True)
def _softmax(x):
    top = largest(x, 0, len(x))
    return top, exps(x, 0, len(x), top)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("width", [0, 1, 3, 7, 8, 9, 16, 17, 31])
def test_rows_of_any_width(kind, width):
    random = np.random.default_rng(width)
    a, b = (random.standard_normal(100).astype(kind) for _ in range(2))
    out = np.zeros(4, kind)
    _dots(out, a, b, width)
    right = [0, *(0.5 * (a[x : x + width] @ b[y : y + width]) for x, y in ((3, 5), (43, 35)))]
    np.testing.assert_allclose(out[:2], right[:2], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out[3], right[2], rtol=1e-5, atol=1e-5)
    total, factor = b.copy(), a[:10].copy()
    _adds(total, factor, a, width)
    right = b.copy()
    for o, f, x in ((4, 1, 2), (54, 4, 47)):
        right[o : o + width] += factor[f] * a[x : x + width]
    np.testing.assert_allclose(total, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_exponentials_are_rounded_as_they_should_be(kind):
    x = np.linspace(-86.9, 0, 1 << 16).astype(kind)
    found = x.copy()
    top, total = _softmax(found)
    right = np.exp(x.astype(np.float64))
    assert top == 0
    assert np.abs(found / right - 1).max() <= np.finfo(kind).eps
    np.testing.assert_allclose(total, right.sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_no_plain_number(kind):
    x = np.array([-np.inf, 0, -1e30, -200, np.nan, -0.0, -1, -2], kind)
    top, total = _softmax(x)
    assert top == 0
    assert np.isnan(total)
    np.testing.assert_allclose(x[[0, 1, 2, 5]], [0, 1, 0, 1])
    assert x[3] < 1e-38
    assert np.isnan(x[4])
