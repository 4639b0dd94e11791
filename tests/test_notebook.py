"""What a notebook shows of patterns, models, solutions and data."""

import re
from xml.etree import ElementTree

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from edgewise import EdgewiseError, F, Program, R, V, attention_graph, data, graphs, ragged, rows
from edgewise.graphs import causal, documents, from_edges, full, global_tokens, per_head, window

RULES = [
    R.k(V.I) <= R.x(V.I)[2, 2],
    R.h(V.I) <= (R.k(V.J)[0.5].fixed(), R._edge(V.I, V.J)),
]


def cells(html):
    """The number of cells that a map fills."""
    return sum(len(re.findall("M", path)) for path in re.findall(r' d="([^"]*)"', html))


@pytest.mark.parametrize(
    ("pattern", "filled"),
    [
        (window(1), 48 * 3 - 2),
        (global_tokens(1), 95),
        (causal(), 48 * 49 // 2),
        (documents([3, 4]), 25),
        (documents([3, 4]) & causal(), 6 + 10),
        (from_edges([[0, 1], [1, 2]], shape=(2, 3)), 2),
        (full() - full(), 0),
    ],
)
def test_a_pattern_is_a_map_of_its_pairs(pattern, filled):
    html = pattern._repr_html_()
    assert cells(html) == filled
    ElementTree.fromstring(html)
    assert "pairs" in html


def test_a_single_line_is_visible_among_many_tokens():
    assert "71 tokens, 1 pairs" in from_edges([(70, 1)])._repr_html_()
    both = window(1) & from_edges([(70, 69), (70, 1)])
    assert "71 tokens, 1 pairs" in both._repr_html_()
    html = documents([500, 1, 400])._repr_html_()
    assert "901 tokens" in html
    assert cells(html) > 64


def test_a_model_shows_its_weights():
    model = Program(RULES).compile(R.h, seed=0)
    assert (
        repr(model)
        == "Model(h from x, edge: 2 rules, 4 parameters\n  k.x  (2, 2)\n  h.k  () fixed\n)"
    )
    assert "<td" in model._repr_html_()


def test_answers_are_tables():
    facts = [R.x("<b>")[[1.0, 2.0]], R.edge("a", "<b>")]
    solution = Program(RULES).solve(facts, seed=0)
    html = solution._repr_html_()
    ElementTree.fromstring(html)
    assert html.count("<tr>") == 1 + len(solution)
    assert "&lt;b&gt;" in html
    model = Program(RULES).compile(R.h, seed=0)
    answer = model(model.ground(facts=facts))
    assert answer._repr_html_().count("<tr>") == 2


def test_a_long_table_says_how_many_rows_it_leaves_out():
    model = Program([R.h(V.I) <= (R.x(V.I), R._edge(V.I))]).compile(R.h)
    answer = model(x=torch.arange(100.0), edge=torch.arange(100)[None])
    html = model.rows(x=torch.arange(100.0), edge=torch.arange(100)[None])._repr_html_()
    assert html.count("<tr>") == 21
    assert "80 more" in html
    assert answer is not None


def test_growing_says_how_far_it_is():
    rules = [
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    growing = Program(rules).compile(R.h).growing(8)
    growing(x=torch.ones(3, 4))
    assert repr(growing) == "<growing: 3 of 8 rows>"
    assert "3 of 8 rows are cached" in growing._repr_html_()
    ElementTree.fromstring(growing._repr_html_())


def test_data_says_what_it_holds():
    model = Program(RULES).compile(R.h, seed=0)
    edge = [("a", "<b>"), ("b", "<b>")]
    html = model.ground(x={"<b>": [1.0, 2.0]}, edge=edge)._repr_html_()
    ElementTree.fromstring(html)
    assert "keys, values (2,)" in html
    assert "2 rows" in html
    batch = model.ground(x=ragged([torch.ones(2, 2)]), edge=ragged([torch.tensor([[0], [1]])]))
    assert "1 sample" in batch._repr_html_()
    assert "facts" in model.ground(facts=[R.x(0)[[1.0, 2.0]], R.edge(0, 0)])._repr_html_()


def test_heads_are_side_by_side_and_edits_a_table():
    html = per_head(window(1), full())._repr_html_()
    ElementTree.fromstring(html)
    assert html.count("<svg") == 2
    updating = Program(RULES).compile(R.h, seed=0).updating(x=torch.ones(2, 2), edge=[(0, 1)])
    assert "recomputed" in updating._repr_html_()


def test_an_error_comes_first_and_its_traceback_is_folded():
    shell = InteractiveShell.instance()
    try:
        with pytest.raises(EdgewiseError) as caught:
            Program([R.h(V.I) <= R.x(V.J)]).solve([])
        shown = "\n".join(caught.value._render_traceback_())
        assert shown.startswith("\x1b[1;31merror[unbound-variable]")
        assert "Traceback" not in shown
        assert "%xmode" in shown
        shell.run_line_magic("xmode", "Verbose")
        assert "pytest.raises" in "\n".join(caught.value._render_traceback_())
    finally:
        shell.run_line_magic("xmode", "Context")
        InteractiveShell.clear_instance()


def test_a_dataset_is_a_table():
    schema = data.Schema(r=data.table("t", keys=["id"], label="y"))
    found = data.read({"t": {"id": ["<i>", "b"], "y": [0, 1]}}, schema)
    ElementTree.fromstring(found._repr_html_())


def test_attention_is_shown_head_by_head():
    weights = torch.softmax(torch.randn(3, 5, 5), -1)
    html = attention_graph([weights])._repr_html_()
    assert html.count("<svg") == 3
    ElementTree.fromstring(html)
    long = attention_graph([torch.eye(100)[None]], tokens=["<b>"] * 100)
    assert "&lt;b&gt;" in long._repr_html_()
    assert repr(long) == "AttentionGraph(100 tokens, 1 layer, 1 head)"


def test_inputs_are_not_shown_as_walls_of_numbers():
    batch = ragged([torch.zeros(3, 2), torch.zeros(5, 2)])
    assert repr(batch) == "<ragged: 2 samples: (3, 2), (5, 2)>"
    assert repr(ragged([torch.zeros(1, 2)] * 9)).endswith("(1, 2), …>")
    assert repr(rows([("a", "b"), ("b", "b")], [0.5, 2.0])) == (
        "<rows: 2 keys of 2 terms, 2 strings, values (2,)>"
    )


def test_an_error_names_the_cell_of_its_place(capsys):
    shell = InteractiveShell.instance()
    try:
        shell.run_cell("from edgewise import R, V", store_history=True)
        shell.run_cell("R.x(V.I) ** 2", store_history=True)
    finally:
        InteractiveShell.clear_instance()
    assert "--> Cell In[2]:1:1" in capsys.readouterr().out


def test_a_predicate_has_the_name_of_its_function():
    assert repr(graphs.where(lambda i, j: i > j)) == "where(<lambda>)"


def test_answers_are_a_table_and_a_dict():
    solution = Program(RULES).solve([R.x(i)[[1.0, i]] for i in range(30)] + [R.edge(0, 1)], seed=0)
    answers = solution[R.x(V.I)]
    ElementTree.fromstring(answers._repr_html_())
    assert "[1, 29]" not in answers._repr_html_()
    assert "30 atoms" in answers._repr_html_()
    assert dict(answers) == answers
