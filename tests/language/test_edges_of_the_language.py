"""What a newcomer writes first: refused with the spelling that works."""

import pytest
import torch

import edgewise
from edgewise import EdgewiseError, Program, R, V, graphs

Q = torch.randn(1, 2, 16, 8)


@pytest.mark.parametrize(
    ("write", "help"),
    [
        (lambda: R.hidden <= R.x, 'R["hidden"]'),
        (lambda: R.special / 1, 'R["special"]'),
        (lambda: R[5], 'R["h"]'),
        (lambda: R[64, 32], "R.h[64, 32]"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I in [1, 2]), "R._some(V.I)"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I**2 <= 6), "V.I * V.I"),
        (lambda: (V.J <= V.I) | (V.J == 5), "write two rules"),
        (lambda: Program([R.h(V.I) == R.x(V.I)]), "head <= body"),
        (lambda: edgewise.attention(Q, Q, Q, torch.ones(16, 16)), "from_dense"),
        (lambda: edgewise.attention(Q, Q, Q, lambda i, j: i >= j), "graphs.where"),
        (lambda: edgewise.attention(Q, Q, Q, "window(3)"), "graphs.parse('window(3)')"),
    ],
)
def test_a_slip_is_refused_with_the_right_spelling(write, help):
    with pytest.raises(EdgewiseError) as caught:
        write()
    assert help in caught.value.help


def test_the_spellings_that_are_suggested_work():
    assert R["hidden"](V.I).relation == "hidden"
    assert graphs.parse("window(3)") == graphs.window(3)
    mask = graphs.window(3).dense(16)
    found = edgewise.attention(Q, Q, Q, graphs.from_dense(mask))
    same = edgewise.attention(Q, Q, Q, graphs.where(lambda i, j: (i - j).abs() <= 3))
    torch.testing.assert_close(found, same)
    torch.testing.assert_close(found, edgewise.attention(Q, Q, Q, graphs.window(3)))
