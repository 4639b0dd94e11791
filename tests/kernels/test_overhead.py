"""A call that is repeated costs few calls of Python: those of the README's program are counted."""

import sys

import pytest
import torch

from edgewise import F, Program, R, V
from edgewise.graphs import cache, global_tokens, window
from edgewise.kernels import kernel_choices

MOST = 60  # calls of Python functions


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # others take calls of their own
    cache.clear()
    yield
    torch.set_num_threads(before)
    cache.clear()


def program(graph):
    return Program(
        [
            R.q(V.I) <= R.x(V.I)["q":4, 4],
            R.k(V.I) <= R.x(V.I)["k":4, 4],
            (R.weights(V.I, V.J) <= (R.k(V.J).T, R.q(V.I), graph(V.I, V.J)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.attention(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )


def calls_of(run):
    names, count = [], 0

    def counts(frame, event, argument):
        nonlocal count
        if event == "call":
            count += 1
            names.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    before = sys.getprofile()
    sys.setprofile(counts)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count, names


@pytest.mark.parametrize("numba", [True, False], ids=["numba", "no numba"])
@pytest.mark.parametrize("graph", [window(256) | global_tokens(2), window(3)], ids=repr)
def test_the_fifth_call_of_the_readme_makes_at_most_sixty_calls(monkeypatch, numba, graph):
    if numba:
        pytest.importorskip("numba", reason="numba is not installed")
    else:
        monkeypatch.setattr(kernel_choices, "_installed", lambda package: package != "numba")
    model, x = program(graph).compile(R.attention, seed=0), torch.randn(2, 4096, 4)
    for _ in range(4):
        model(x=x).sum().backward()
    count, names = calls_of(lambda: model(x=x))
    assert count <= MOST, "\n".join(names)


def test_a_second_thread_adds_few_calls():
    pytest.importorskip("numba", reason="numba is not installed")
    torch.set_num_threads(2)
    model, x = (
        program(window(256) | global_tokens(2)).compile(R.attention, seed=0),
        torch.ones(2, 4096, 4),
    )
    for _ in range(4):
        model(x=x)
    count, names = calls_of(lambda: model(x=x))
    assert count <= 90, "\n".join(names)
