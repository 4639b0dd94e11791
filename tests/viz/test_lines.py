"""Every line of a pattern is there in its picture, down to one token in hundreds."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from edgewise.graphs import causal, compare, dilated, global_tokens, window

LONG = window(0) & (causal() | causal().T | dilated(3, 7) | dilated(2, 9) | global_tokens(1))


def matrices(figure):
    """For each matrix of a figure, which pixels are not white, with a margin inside its frame."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    colours = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    for axes in figure.axes:
        if axes.images:
            area = axes.get_window_extent()
            top, left = len(colours) - round(area.y1) - 1, round(area.x0) - 1
            bottom, right = len(colours) - round(area.y0) + 1, round(area.x1) + 1
            yield colours[top:bottom, left:right].sum(2) < 3 * 250


def assert_every_row_and_column(ink):
    assert ink.any(0)[2:-2].all()
    assert ink.any(1)[2:-2].all()


@pytest.mark.parametrize("n", [129, 200, 256, 777])
def test_lines_of_one_token_are_seen(n):
    for figure in (global_tokens(1).plot(n), compare(global_tokens(1), window(0), n=n)):
        ink = next(matrices(figure))
        assert_every_row_and_column(ink)
        assert ink[2:-2, :8].all(0).any()  # the column of token 0, without a gap
        assert ink[:8, 2:-2].all(1).any()
    for figure in (window(0).plot(n), LONG.plot(n), compare(window(0), LONG, n=n)):
        for ink in matrices(figure):
            assert_every_row_and_column(ink)


@pytest.mark.parametrize("n", [200, 256, 700])
def test_a_far_diagonal_is_seen(n):
    far = dilated(1, n // 2) - window(0)
    for ink in matrices(compare(far, far, n=n)):
        assert ink[:, -ink.shape[1] // 3 :].any(0)[:-2].all()
