"""One to eight rows times matrices: as torch computes them, on any number of threads."""

import os
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import linear

from edgewise.kernels import products
from edgewise.kernels import threads as workers
from edgewise.kernels.products import MOST, Products
from edgewise.kernels.threads import together


def assert_product(found, x, matrix):
    """As close as rounding allows for the sizes that are summed."""
    exact, size = (
        linear(a, b)
        for a, b in ((x.double(), matrix.double()), (x.double().abs(), matrix.double().abs()))
    )
    assert found.dtype == x.dtype
    assert bool(((found - exact).abs() <= 16 * torch.finfo(x.dtype).eps * size).all())


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@settings(max_examples=60)
@given(st.data())
def test_as_torch_computes_them(data):
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    lead = data.draw(st.sampled_from([(), (1,), (1, 1), (2, 1), (3, 2), (8,), (9,), (0,)]))
    width = data.draw(st.integers(1, 130))
    counts = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=3))
    x = torch.randn(*lead, width, dtype=dtype)
    matrices = [torch.randn(n, width, dtype=dtype) for n in counts]
    for matrix, found in zip(matrices, Products(matrices)(x), strict=True):
        assert found.shape == (*lead, len(matrix))
        assert_product(found, x, matrix)


def large(dtype=torch.float32):
    return torch.randn(130, 257, dtype=dtype), torch.randn(57, 257, dtype=dtype)


def test_every_thread_takes_its_share(threads):
    for rows in range(1, MOST + 1):
        x, matrices = torch.randn(rows, 257), large()
        ready = Products(matrices)
        assert ready.refuses(x) is None
        for matrix, found in zip(matrices, ready(x), strict=True):
            assert_product(found, x, matrix)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_stays_so(value):
    x, (matrix, _) = torch.randn(2, 257), large()
    x[1, 100] = value
    matrix[5, 100], matrix[7, 7] = 0.0, value
    (found,) = Products([matrix])(x)
    torch.testing.assert_close(found, linear(x, matrix), rtol=1e-4, atol=1e-4, equal_nan=True)


REFUSED = {
    "gradients": lambda x, m: (x.requires_grad_(), m),
    "gradients of a matrix": lambda x, m: (x, torch.nn.Parameter(m)),
    "many rows": lambda x, m: (x.repeat(9, 1), m),
    "no rows": lambda x, m: (x[:0], m),
    "half precision": lambda x, m: (x.half(), m.half()),
    "small": lambda x, m: (x, m[:3]),
    "not contiguous": lambda x, m: (x, m.T.contiguous().T),
    "meta": lambda x, m: (x.to("meta"), m.to("meta")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_rest_is_left_to_torch(case):
    x, matrix = REFUSED[case](torch.randn(1, 257), large()[0])
    ready = Products([matrix])
    assert ready.refuses(x) is not None
    (found,) = ready(x)
    assert found.device == x.device
    assert found.requires_grad == linear(x, matrix).requires_grad
    if case != "meta":
        torch.testing.assert_close(found, linear(x, matrix))


def test_rows_in_another_precision_are_refused_by_torch():
    (matrix, _) = large()
    with pytest.raises(RuntimeError, match="dtype"):
        Products([matrix])(torch.randn(1, 257, dtype=torch.float64))


def test_inside_of_a_transformation():
    x, (matrix, _) = torch.randn(4, 257), large()
    found = torch.vmap(lambda row: Products([matrix])(row)[0])(x)
    torch.testing.assert_close(found, linear(x, matrix))


def test_autocast_chooses_the_precision():
    x, (matrix, _) = torch.randn(1, 257), large()
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = Products([matrix])(x)
        torch.testing.assert_close(found, linear(x, matrix))
    assert found.dtype == torch.bfloat16


def test_gradients_are_those_of_torch():
    x, (matrix, _) = torch.randn(1, 257, requires_grad=True), large()
    (found,) = Products([matrix])(x)
    (grad,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(grad, matrix.sum(0, keepdim=True))


def test_without_numba_torch_computes(monkeypatch):
    monkeypatch.setattr(products, "no_numba", lambda device: "numba is not installed")
    x, matrices = torch.randn(1, 257), large()
    ready = Products(matrices)
    assert ready.refuses(x) == "numba is not installed"
    torch.testing.assert_close(ready(x)[0], linear(x, matrices[0]))


def counted(seen, item, first, last):
    seen.extend((item, i) for i in range(first, last))


def test_every_row_of_every_item_once(threads):
    for counts in ([5], [0, 1, 7], [1, 1]):
        seen = []
        together(counted, [(seen, k) for k in range(len(counts))], counts)
        assert sorted(seen) == [(k, i) for k, n in enumerate(counts) for i in range(n)]


def test_a_failure_anywhere_is_the_callers(threads):
    def fails(first, last):
        if last == 6:
            raise ValueError("the last row")

    with pytest.raises(ValueError, match="the last row"):
        together(fails, [()], [6])
    test_every_row_of_every_item_once(threads)


def test_many_callers_at_once(threads):
    x, matrices = torch.randn(1, 257), large()
    ready, wrong = Products(matrices), []

    def call():
        for _ in range(50):
            found = ready(x)
            if not all(
                torch.allclose(f, linear(x, m), atol=1e-4)
                for f, m in zip(found, matrices, strict=True)
            ):
                wrong.append(found)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together(counted, [([], 0)], [4])
        assert workers._crew.workers
        child = os.fork()
        if not child:
            seen = []
            together(counted, [(seen, 0)], [4])
            os._exit(0 if len(seen) == 4 else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)
