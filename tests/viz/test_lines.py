"""Every line of a pattern is there in its picture, down to one token in hundreds."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from edgewise.graphs import causal, compare, dilated, global_tokens, window

LONG = window(0) & (causal() | causal().T | dilated(3, 7) | dilated(2, 9) | global_tokens(1))


def matrices(figure):
    """For each matrix of a figure, which pixels are not white."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    colours = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    for axes in figure.axes:
        if axes.images:
            inside = axes.get_window_extent()
            top, left = len(colours) - int(inside.y1), int(inside.x0)
            bottom, right = len(colours) - int(inside.y0), int(inside.x1)
            yield (colours[top:bottom, left:right].sum(2) < 3 * 250)[1:-1, 1:-1]


@pytest.mark.parametrize("n", [64, 129, 200, 256, 300, 400, 513, 777, 1000])
def test_lines_of_one_token_are_seen(n):
    for figure in (global_tokens(1).plot(n), compare(global_tokens(1), window(0), n=n)):
        ink = next(matrices(figure))
        assert ink.any(0).all()
        assert ink.any(1).all()
        assert ink[:, :8].all(0).any()  # the column of token 0, without a gap
        assert ink[:8].all(1).any()
    for figure in (window(0).plot(n), LONG.plot(n), compare(*[window(0)] * 4, n=n)):
        for ink in matrices(figure):
            assert ink.any(0).all()
            assert ink.any(1).all()


@pytest.mark.parametrize("n", [200, 256, 700])
def test_a_far_diagonal_is_seen(n):
    far = dilated(1, n // 2) - window(0)
    for ink in matrices(compare(far, far, n=n)):
        assert ink[:, -ink.shape[1] // 3 :].any(0).all()
