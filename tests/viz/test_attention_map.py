"""Attention as a picture: what is drawn is what was passed, and bad weights are refused."""

import re
from base64 import b64decode
from io import BytesIO

import pytest
import torch
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from edgewise import EdgewiseError, F, Program, R, V, viz
from edgewise.graphs import causal, window
from edgewise.viz.figure import BLUE, ORANGE

WORDS = ["the", "music", "because", "it", "sounds"]


def drawn(axes):
    """The weight of each cell of a matrix, from its opacity."""
    cells = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_alpha() is not None]
    return {(int(p.get_y()), int(p.get_x())): p.get_alpha() ** 1.25 for p in cells}


def softmax(n=5, graph=None):
    scores = torch.randn(n, n, generator=torch.manual_seed(0), dtype=torch.float64)
    if graph is not None:
        scores = scores.masked_fill(~graph.dense(n), -torch.inf)
    return torch.softmax(scores, 1)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["dense", "coo", "csr", "mapping", "array", "lists"])
def test_every_layout_draws_the_same_weights(layout):
    weights = softmax(graph=causal())
    pairs = {(i, j): weights[i, j].item() for i in range(5) for j in range(i + 1)}
    passed = {
        "dense": weights,
        "coo": weights.to_sparse(),
        "csr": weights.to_sparse_csr(),
        "mapping": pairs,
        "array": weights.numpy(),
        "lists": weights.tolist(),
    }[layout]
    figure = viz.attention(passed, WORDS)
    shown = drawn(figure.axes[0])
    assert shown.keys() == pairs.keys()
    assert all(abs(shown[pair] - pairs[pair]) < 1e-9 for pair in pairs)
    assert "15 of 25 pairs" in [t.get_text() for t in figure.axes[0].texts]


def test_the_relation_of_a_solution_and_of_a_model_are_drawn():
    program = Program([
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [F.product, F.softmax_agg(agg_terms=[V.J])],
    ])  # fmt: skip
    x = torch.randn(5, 4, generator=torch.manual_seed(1), dtype=torch.float64)
    solved = program.solve([R.x(i)[row] for i, row in enumerate(x)])[R.w(V.I, V.J)]
    expected = torch.softmax(x @ x.T, 1)
    figure = viz.attention(solved, WORDS, query="it")
    shown = drawn(figure.axes[0])
    assert all(abs(shown[i, j] - expected[i, j]) < 1e-9 for i in range(5) for j in range(5))
    best = WORDS[int(expected[3].argmax())] if expected[3].argmax() != 3 else "itself"
    assert best in figure.axes[1].texts[-1].get_text()


def test_one_query_is_highlighted_by_word_or_position():
    for query in ("it", 3, -2):
        axes = viz.attention(softmax(), WORDS, query=query).axes[0]
        cells = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_alpha() is not None]
        from matplotlib.colors import to_rgb

        for cell in cells:
            expected = ORANGE if int(cell.get_y()) == 3 else BLUE
            assert cell.get_facecolor()[:3] == to_rgb(expected)


def test_several_graphs_stand_side_by_side_and_a_notebook_shows_them():
    heads = {"causal": softmax(graph=causal()), "window": softmax(graph=window(1))}
    figure = viz.attention(heads, WORDS, notes={"window": "window(1)(I, J)"})
    assert len(figure.axes) == 4
    assert "window(1)(I, J)" in [t.get_text() for t in figure.axes[2].texts]
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert window(1).plot(8)._repr_png_().startswith(b"\x89PNG")


def test_a_notebook_shows_a_figure_on_the_ground_of_its_page_and_a_file_on_white():
    figure = window(1).plot(8)
    encoded = re.search(r'src="data:image/png;base64,([^"]+)"', figure._repr_html_())[1]
    for png, alpha in ((b64decode(encoded), 0), (figure._repr_png_(), 1)):
        assert imread(BytesIO(png))[0, 0].tolist()[3:] == [alpha]


def test_cross_attention_has_its_own_keys():
    weights = torch.softmax(torch.zeros(2, 3), 1)
    figure = viz.attention(weights, ["le", "chat"], keys=["the", "black", "cat"], query="chat")
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["the", "black", "cat"]
    assert "attends to “cat”: 33%" in figure.axes[1].texts[-1].get_text()


@pytest.mark.parametrize(
    ("weights", "words", "code"),
    [
        (torch.zeros(2, 5, 5), WORDS, "bad-weights"),
        (torch.zeros(4, 4), WORDS, "bad-weights"),
        (torch.full((5, 5), torch.nan), WORDS, "bad-weights"),
        (torch.full((5, 5), 3.0), WORDS, "bad-weights"),
        ({(0, 9): 1.0}, WORDS, "bad-weights"),
        ({(0, 1): "a"}, WORDS, "bad-weights"),
        ({3: 1.0}, WORDS, "bad-weights"),
        ("weights", WORDS, "bad-weights"),
        (torch.zeros(5, 5), "the music", "bad-weights"),
        (torch.zeros(0, 0), [], "bad-weights"),
        (torch.zeros(99, 99), ["a"] * 99, "picture-too-large"),
    ],
)
def test_bad_weights_are_refused(weights, words, code):
    with pytest.raises(EdgewiseError) as caught:
        viz.attention(weights, words)
    assert caught.value.code == code


@pytest.mark.parametrize("query", ["absent", 9, -6, True, 1.5])
def test_a_query_that_is_not_a_token_is_refused(query):
    with pytest.raises(EdgewiseError, match="is not a token"):
        viz.attention(softmax(), WORDS, query=query)
