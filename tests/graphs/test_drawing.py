"""Drawings as text, figures, and what cannot be drawn."""

import time
from pathlib import Path

import numpy as np
import pytest

from edgewise import graphs
from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    bigbird,
    causal,
    compare,
    documents,
    drawing,
    global_tokens,
    per_head,
    window,
)

ROOT = Path(__file__).parents[2]


def test_a_drawing_is_the_matrix() -> None:
    assert window(1).draw(3) == "██·\n███\n·██"
    assert causal().draw(2, 4) == "█···\n██··"


def test_print_draws_and_repr_is_code() -> None:
    lines = str(window(2)).splitlines()
    assert lines[0] == repr(window(2)) == "window(2)"
    assert lines[1:] == window(2).draw(16).splitlines()


def test_in_a_text_of_others_a_pattern_is_its_code() -> None:
    assert f"{window(2)} and {causal():>10}" == "window(2) and   causal()"
    assert f"{per_head(window(2))}" == "per_head(window(2))"


def test_heads_are_drawn_measured_and_plotted_one_by_one() -> None:
    heads = per_head(window(1), causal())
    assert heads.draw(2) == "window(1)\n██\n██\n\ncausal()\n█·\n██"
    assert [stats.edges for stats in heads.stats(8)] == [22, 36]
    assert repr(heads.stats(8)).count("8 tokens") == 2
    assert len(heads.plot(8).axes) == 6


def test_a_pattern_made_for_another_size_prints_its_code() -> None:
    assert str(documents([3, 4])) == "documents([3, 4])"


def test_many_tokens_are_shades() -> None:
    lines = causal().draw(1 << 20).splitlines()
    assert len(lines) == 64
    assert lines[1][:3] == "█▒·"
    assert graphs.random_edges(3, seed=0).draw(4096).count("░") > 2000


@pytest.mark.parametrize("kind", drawing.KINDS)
def test_figures(kind: str) -> None:
    figure = (window(2) | global_tokens(1)).plot(40, kind=kind)
    assert "window(2) | global_tokens(1)" in figure.axes[0].get_title()
    figure.canvas.draw()


def test_a_million_tokens_as_a_map() -> None:
    start = time.process_time()
    figure = (bigbird() | window(300)).plot(1 << 20)
    assert time.process_time() - start < 20
    (image,) = figure.axes[0].get_images()
    assert image.get_array().shape == (400, 400)
    assert np.ma.count_masked(image.get_array()) > 0


def test_compare_shows_each_with_its_measures() -> None:
    figure = compare(window(3), global_tokens(1), window(3) | global_tokens(1), n=256)
    figure.canvas.draw()
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert said.count("spectral gap") == 3
    assert "2" in said


BAD = {
    'window(3).plot(5000, kind="ring")': "graph-too-large",
    'window(3).plot(5000, kind="force")': "graph-too-large",
    'window(3).plot(50, kind="pie")': "bad-choice",
    "window(3).plot(0)": "bad-size",
    "window(3).plot(-1)": "bad-size",
    "window(3).draw(0)": "bad-size",
    "window(3).draw(2.5)": "bad-size",
    "compare(n=8)": "not-a-pattern",
    "compare(window(1), 3, n=8)": "not-a-pattern",
    "compare(window(1), n=0)": "bad-size",
    "documents([3, 4]).plot(8)": "size-mismatch",
    "documents([3, 4]).stats(8)": "size-mismatch",
    "window(3).stats(0)": "bad-size",
}


@pytest.mark.parametrize("source", BAD)
def test_what_cannot_be_drawn_says_what_can(source: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        eval(source, vars(graphs).copy())
    assert caught.value.code == BAD[source]
    assert caught.value.help
