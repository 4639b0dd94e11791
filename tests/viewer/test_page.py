"""Pages without a browser: bytes, safety, quantisation, errors, and that they are built of web/."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise import F, Program, R, V, attention_graph, view
from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.errors import NoAttention, NoTokens
from edgewise.attention_graphs.graph import AttentionGraph
from edgewise.graphs import global_tokens, parse, window
from edgewise.graphs.errors import BadSize
from edgewise.viewer.errors import CannotSave, CannotShow, MissingAssets, ViewTooLarge
from edgewise.viewer.page import MOST_BYTES, read_asset

ROOT = Path(__file__).parents[2]
WEB, ASSETS = ROOT / "web", Path(edgewise.__file__).parent / "viewer" / "assets"
HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"'&<>`${x}",
    "\x00\x07\n\u2028",
    "\u202eabc",
    "\ud800",
]


def unpacked(page):
    """The headers of the panels and a reader of their arrays."""
    data = page.html.partition('id="data">')[2].partition("</script>")[0]
    raw = zlib.decompress(base64.b64decode(data))
    size = int.from_bytes(raw[:4], "little")
    body = raw[4 + size :]

    def array(panel, name, bits):
        at, count = panel["arrays"][name]
        found = np.frombuffer(body[at : at + count], "u1")
        return found if bits == 8 else found.reshape(2, -1).T.copy().view("<u2").ravel()

    return json.loads(raw[4 : 4 + size])["panels"], array


def weights_in(page, at=0):
    """(heads of all layers, n, n) that a page holds."""
    panels, array = unpacked(page)
    panel = panels[at]
    n, heads = panel["n"], sum(layer["heads"] for layer in panel["layers"])
    degree, step = array(panel, "degree", 16), array(panel, "keys", 16)
    quantised = array(panel, "weights", panel["bits"]).astype(float)
    values = quantised / 65535 if panel["bits"] == 16 else (quantised / 255) ** 2
    out, edge = np.zeros((heads * n, n)), 0
    for row, count in enumerate(degree):
        keys = np.cumsum(step[edge : edge + int(count)].astype(int))
        out[row, keys] = values[edge : edge + int(count)]
        edge += int(count)
    return torch.from_numpy(out).reshape(heads, n, n)


def random_weights(layers=2, heads=3, n=7):
    return (3 * torch.randn(layers, heads, n, n, generator=torch.manual_seed(0))).softmax(-1)


def test_a_short_text_is_there_to_16_bits():
    w = random_weights()
    found = weights_in(view(list(w), tokens=list("abcdefg")))
    torch.testing.assert_close(found.float(), w.flatten(0, 1), atol=0.51 / 65535, rtol=0)


def test_512_tokens_and_144_heads_fit(base_sized):
    """As many heads as BERT base; the strongest edges, and the strongest of every query."""
    graph, page = base_sized
    assert 300_000 < len(page.html.encode()) <= MOST_BYTES
    found = weights_in(page)
    wanted = torch.stack([graph.weights(at, h) for at in (0, 11) for h in range(12)]).double()
    ours = torch.cat([found[:12], found[-12:]])
    some = ours > 0
    assert bool((some.sum(-1) >= 1).all())
    torch.testing.assert_close(ours[some].sqrt(), wanted[some].sqrt(), atol=0.6 / 255, rtol=0)
    least = unpacked(page)[0][0]["least"]
    assert least < 0.2
    assert bool(some[wanted > least + 1e-6].all())  # nothing above it is missing
    best = wanted.amax(-1)
    torch.testing.assert_close(ours.amax(-1).sqrt(), best.sqrt(), atol=0.6 / 255, rtol=0)


def test_65536_tokens_through_tiles():
    n = 1 << 16
    q = torch.randn(2, n, 4, generator=torch.manual_seed(0))
    graph = AttentionGraph(("word",) * n, (AttentionCall("a", q, q, window(8) | global_tokens(1)),))
    page = view(graph)
    assert len(page.html.encode()) <= MOST_BYTES
    (panel,), array = unpacked(page)
    g, size = panel["tiles"]["g"], panel["tiles"]["size"]
    tiles = (array(panel, "tiles", 8).reshape(2, g, g) / 255.0) ** 2
    sums = tiles * np.array(panel["tiles"]["most"])[:, None, None]
    np.testing.assert_allclose(sums.sum((1, 2)), n, rtol=0.02)  # every query's weights are 1
    diagonal = sums[0].diagonal()[1:-1]
    assert bool((diagonal > 0.9 * size * (sums[0].sum(-1)[1:-1] / size)).mean() > 0.5)


def test_a_million_tokens_by_rule():
    page = view(window(512) | global_tokens(2), n=1 << 20)
    assert len(page.html) < 100_000
    assert unpacked(page)[0][0]["pattern"] == "window(512) | global_tokens(2)"


@pytest.mark.parametrize(
    "text",
    ["erdos_renyi(0.3, seed=0)", "expander(4, seed=0)", "window(1).restrict(queries=(2, 5))",
     'bigbird(block=2, random=1, seed=0, variant="hf_eval")'],
)  # fmt: skip
def test_patterns_that_the_page_does_not_know_are_edges(text):
    pattern = parse(text)
    page = view(pattern, n=24)
    (panel,), _ = unpacked(page)
    assert panel["kind"] == "model"
    torch.testing.assert_close(weights_in(page)[0] > 0, pattern.dense(24))


def test_two_beside_each_other():
    page = view([torch.eye(4)[None]], tokens=list("abcd"), beside=window(1), title="two")
    first, second = unpacked(page)[0]
    assert (first["kind"], second["kind"], second["n"], page.title) == (
        "model",
        "pattern",
        4,
        "two",
    )


def test_texts_of_users_are_never_markup():
    page = view([torch.eye(5)[None]], tokens=HOSTILE, title=HOSTILE[0])
    shell = page.html
    assert shell.count("<script") == 2
    assert "alert(1)</script><" not in shell.replace("&lt;", "<").replace("&gt;", ">")[400:]
    assert unpacked(page)[0][0]["tokens"] == HOSTILE
    assert "<script" not in page._repr_html_().partition("srcdoc")[2].partition(">")[0]
    assert page._repr_html_().count("<") == 2


def test_a_page_names_no_other_place():
    page = view(window(1), n=8)
    assert "http:" not in page.html.replace("http://www.w3.org", "")
    assert "https:" not in page.html
    assert "default-src 'none'" in page.html


def test_the_rule_and_its_plan_are_there():
    rules = Program([
        (R.weights(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), window(2)(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.y(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
    ])  # fmt: skip
    (panel,), _ = unpacked(view(rules.compile(R.y), x=torch.randn(9, 2)))
    (layer,) = panel["layers"]
    assert layer["rule"].startswith("weights(I, J) :- x(J).T, x(I), @window(2)(I, J).")
    assert "attention from I over J" in layer["plan"]
    assert layer["pattern"] == "window(2)"


def test_saving(tmp_path):
    page = view(window(1), n=8)
    path = page.save(tmp_path / "a.html")
    assert path.read_text(encoding="utf-8") == page.html
    with pytest.raises(CannotSave):
        page.save(tmp_path / "no" / "a.html")
    with pytest.raises(CannotSave):
        page.save(tmp_path)
    assert repr(page).startswith("View(window(1), ")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: view(window(1), "a text"), CannotShow),
        (lambda: view(window(1), n=0), BadSize),
        (lambda: view([torch.zeros(1, 0, 0)]), CannotShow),
        (lambda: view(parse("erdos_renyi(0.1, seed=0)"), n=100_000), ViewTooLarge),
        (lambda: view(window(1), n=1 << 21), BadSize),
        (lambda: view("bert", "a text"), NoAttention),
        (lambda: view(None, "a text"), NoAttention),
        (lambda: view(Program([R.h(V.I) <= R.x(V.I)]).compile(R.h), x=torch.ones(3)), NoAttention),
        (lambda: view([torch.eye(2)[None]], tokens=["a"]), NoTokens),
        (lambda: view(AttentionGraph(("a",), ())), NoAttention),
        (lambda: view(window(1), n=4, beside=3), NoAttention),
        (lambda: read_asset("nothing.js"), MissingAssets),
    ],
)
def test_mistakes(call, error):
    with pytest.raises(error):
        call()


def test_too_many_tokens():
    n = (1 << 16) + 1
    q = torch.zeros(1, n, 1)
    graph = AttentionGraph(("a",) * n, (AttentionCall("a", q, q, window(0)),))
    with pytest.raises(ViewTooLarge):
        view(graph)


def sources():
    named = ("package.json", "package-lock.json", "tsconfig.json", "vite.config.mjs")
    files = [*(WEB / name for name in named), *(p for p in (WEB / "src").rglob("*") if p.is_file())]
    hashed = hashlib.sha256()
    for name, path in sorted((p.relative_to(WEB).as_posix(), p) for p in files):
        hashed.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def test_the_script_is_built_of_these_sources():
    if not WEB.exists():
        pytest.skip("the sources of the script are in a checkout alone")
    assert (ASSETS / "sources.sha256").read_text().strip() == sources(), "run `make viewer`"


def test_a_rebuild_gives_the_same_bytes(tmp_path):
    if shutil.which("npm") is None or not (WEB / "node_modules").exists():
        pytest.skip("npm, or the packages of web/, are not installed: `make viewer` installs them")
    subprocess.run(
        ["npm", "run", "build"], cwd=WEB, check=True, capture_output=True,
        env={**os.environ, "VIEWER_OUT": str(tmp_path)},
    )  # fmt: skip
    for name in ("viewer.js", "viewer.css", "sources.sha256"):
        assert (tmp_path / name).read_bytes() == (ASSETS / name).read_bytes(), name


def test_the_lock_names_packages_without_addresses():
    text = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert text.count('"integrity"') > 40


def test_an_attention_graph_is_shown_too():
    w = random_weights()
    assert view(attention_graph(list(w))).html == view(attention_graph(list(w))).html


def test_a_graph_has_its_own_text():
    graph = attention_graph([torch.eye(3)[None]])
    for options in ({"text": "to be"}, {"tokens": ["a", "b", "c"]}, {"x": torch.ones(3)}):
        with pytest.raises(edgewise.EdgewiseError) as caught:
            view(graph, **options)
        assert caught.value.code == "cannot-show"


def test_a_title_is_a_text():
    with pytest.raises(edgewise.EdgewiseError) as caught:
        view([torch.eye(3)[None]], title=3)
    assert caught.value.code == "cannot-show"


def test_a_sample_is_one_of_the_batch():
    weights = torch.eye(3).expand(2, 1, 3, 3)
    assert len(attention_graph([weights], sample=1).tokens) == 3
    with pytest.raises(edgewise.EdgewiseError) as caught:
        attention_graph([weights], sample=2)
    assert caught.value.code == "no-such-head"
