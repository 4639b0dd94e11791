"""Pages in a real browser: what is drawn equals the tensors, offline, by mouse and by keyboard."""

import json
import math

import pytest
import torch

from edgewise import view
from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.graph import AttentionGraph
from edgewise.graphs import global_tokens, parse, window
from edgewise.viewer.payload import KNOWN
from tests.browser.chromium import browser, chromium

if not chromium():
    pytest.skip(
        "SKIPPED: Debian's chromium is not installed: `.ci/chromium`", allow_module_level=True
    )
pytest.importorskip("playwright")

WORDS = ["the", "cat", "sat", "on", "it"]
LIGHT = ("#f4f7fb", "#bfd6ec", "#5f9bd1", "#1c5c9f", "#06274e")
DARK = ("#1a212a", "#17466f", "#3584ad", "#9ccbd0", "#fff4c2")


def shade(weight, scale=LIGHT):
    """The colour of a weight: linear between five colours, at the square root of the weight."""
    stops = [tuple(int(c[k : k + 2], 16) for k in (1, 3, 5)) for c in scale]
    t = math.sqrt(weight) * 4
    k = min(int(t), 3)
    return [round(a + (b - a) * (t - k)) for a, b in zip(stops[k], stops[k + 1], strict=True)]


@pytest.fixture(scope="module")
def chrome():
    with browser() as found:
        yield found


@pytest.fixture
def opened(chrome, tmp_path):
    """A function that opens a page from its file; nothing may be requested, nothing may fail."""
    contexts, faults = [], []

    def open_(page, width=1180, height=720, faulty=False, framed=False, **options):
        path = page if isinstance(page, type(tmp_path)) else page.save(tmp_path / "page.html")
        context = chrome.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        tab = context.new_page()
        if not faulty:
            tab.on("pageerror", lambda error: faults.append(str(error)))
            tab.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        address = path.as_uri()
        known = {address, "about:srcdoc"} if framed else {address}
        tab.on("request", lambda r: None if r.url in known else faults.append(r.url))
        tab.on("dialog", lambda dialog: (faults.append("a dialog"), dialog.dismiss()))
        tab.goto(address)
        tab.wait_for_selector("html[data-ready], #damaged", timeout=20_000)
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert faults == []


def weights(heads=2, n=5, layers=2):
    return (2 * torch.randn(layers, heads, n, n, generator=torch.manual_seed(1))).softmax(-1)


def settle(tab):
    """After the next frame, in which changes are drawn."""
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def choose(tab, name, value):
    tab.select_option(f"#{name}", str(value))
    settle(tab)


def pixel(tab, x, y, canvas="#picture"):
    found = tab.evaluate(
        "([id, x, y]) => [...document.querySelector(id).getContext('2d')"
        ".getImageData(x, y, 1, 1).data]",
        [canvas, round(x), round(y)],
    )
    return found[:3]


def frame(tab, canvas="#picture"):
    return json.loads(tab.get_attribute(canvas, "data-frame"))


def middle(f, i, j):
    return f["left"] + (j - f["x"] + 0.5) * f["unit"], f["top"] + (i - f["y"] + 0.5) * f["unit"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_cell_of_the_map_has_the_colour_of_its_weight(opened, scheme):
    w = weights()
    tab = opened(view(list(w), tokens=WORDS), color_scheme=scheme)
    tab.click("#tab-map")
    tab.fill("#threshold", "0")
    scale = LIGHT if scheme == "light" else DARK
    for layer in range(2):
        choose(tab, "layer", layer)
        for head in range(2):
            choose(tab, "head", head)
            f = frame(tab)
            for i in range(5):
                for j in range(5):
                    drawn, wanted = (
                        pixel(tab, *middle(f, i, j)),
                        shade(float(w[layer, head, i, j]), scale),
                    )
                    assert max(abs(a - b) for a, b in zip(drawn, wanted, strict=True)) <= 1


def hover(tab, x, y, canvas="#picture"):
    box = tab.locator(canvas).bounding_box()
    tab.mouse.move(box["x"] + x, box["y"] + y)
    settle(tab)


def test_pointing_at_a_cell_says_its_weight(opened):
    w = weights()
    tab = opened(view(list(w), tokens=WORDS))
    tab.click("#tab-map")
    choose(tab, "layer", 1)
    choose(tab, "head", 1)
    for i, j in ((0, 0), (2, 4), (4, 1)):
        hover(tab, *middle(frame(tab), i, j))
        share = 100 * float(w[1, 1, i, j])
        shown = f"{share:.1f}%" if share >= 9.95 else f"{share:.2f}%"
        assert tab.inner_text("#status") == f"“{WORDS[i]}” ({i}) to “{WORDS[j]}” ({j}): {shown}"


def test_the_threshold_hides_weaker_edges(opened):
    w = weights()
    tab = opened(view(list(w), tokens=WORDS))
    choose(tab, "layer", 0)
    choose(tab, "head", 0)
    tab.fill("#threshold", "0.5")  # of 0.25
    settle(tab)
    count = int((w[0, 0] >= 0.25).sum())
    assert int(tab.get_attribute("#picture", "data-edges")) == count
    assert tab.inner_text("output") == f"0.250, {count} edges"


def token_place(tab, i):
    c = json.loads(tab.get_attribute("#picture", "data-circle"))
    turn = 2 * math.pi * i / c["n"] - math.pi / 2
    return c["x"] + c["radius"] * math.cos(turn), c["y"] + c["radius"] * math.sin(turn)


def listed(tab, kind):
    rows = tab.locator(f".bars.{kind} li")
    return [tuple(rows.nth(k).inner_text().split("\n")) for k in range(rows.count())]


def test_pointing_at_a_token_lights_what_it_attends_to_and_what_attends_to_it(opened):
    w = torch.zeros(1, 1, 5, 5)
    w[0, 0] = torch.tensor([[0.5, 0.5, 0, 0, 0], [0, 1, 0, 0, 0], [0.25, 0, 0, 0, 0.75],
                            [0, 0, 0, 1, 0], [0.125, 0.5, 0.375, 0, 0]])  # fmt: skip
    tab = opened(view(list(w), tokens=WORDS))
    x, y = token_place(tab, 4)
    assert pixel(tab, x, y) == [0x5D, 0x6B, 0x7C]
    hover(tab, x, y)
    assert pixel(tab, x, y) == [0x00, 0x72, 0xB2]
    assert listed(tab, "out") == [("cat 1", "50.0%"), ("sat 2", "37.5%"), ("the 0", "12.5%")]
    assert listed(tab, "into") == [("sat 2", "75.0%")]
    assert tab.inner_text("#status").startswith("“it” attends to “cat” 50.0%, “sat” 37.5%")
    assert tab.inner_text("#status").endswith("attended to by “sat” 75.0%")


def test_hops_step_by_step(opened):
    tab = opened(view([torch.eye(5).roll(1, 1)[None]], tokens=WORDS))
    tab.focus("#picture")
    tab.keyboard.press("ArrowRight")  # the first token
    said = []
    for _ in range(3):
        tab.click("#hop-next")
        settle(tab)
        said.append(tab.inner_text("#status"))
    assert said == [f"hop {h}: 1 new, {h + 1} of 5 tokens reached" for h in (1, 2, 3)]
    assert pixel(tab, *token_place(tab, 3)) == [0xC9, 0x8A, 0x00]  # the colour of the third hop
    tab.click("#hop-back")
    settle(tab)
    assert tab.inner_text("#status").startswith("hop 2:")
    tab.click("#hop-play")
    tab.wait_for_selector("#status:has-text('hop 1:')", timeout=10_000)


def test_the_gallery_shows_all_heads_and_opens_them(opened):
    w = weights(heads=3, layers=2)
    tab = opened(view(list(w), tokens=WORDS))
    tab.click("#tab-heads")
    settle(tab)
    g = json.loads(tab.get_attribute("#picture", "data-grid"))
    for layer in range(2):
        for head in range(3):
            x, y = g["left"] + head * g["cell"], g["top"] + layer * (g["cell"] + 14)
            unit = g["thumb"] / 5
            drawn = pixel(tab, x + 2.5 * unit, y + 1.5 * unit)
            wanted = shade(float(w[layer, head, 1, 2]))
            assert max(abs(a - b) for a, b in zip(drawn, wanted, strict=True)) <= 1
    box = tab.locator("#picture").bounding_box()
    tab.mouse.click(box["x"] + g["left"] + g["cell"] + 9, box["y"] + g["top"] + g["cell"] + 30)
    settle(tab)
    assert (tab.input_value("#layer"), tab.input_value("#head")) == ("1", "1")
    choose(tab, "metric", "distance")


def test_two_side_by_side(opened):
    w = weights()
    tab = opened(view(list(w), tokens=WORDS, beside=window(1)))
    tab.click("#tab-compare")
    tab.fill("#threshold", "0")
    settle(tab)
    left, right = frame(tab), frame(tab, "#second")
    at = int(tab.input_value("#layer")), int(tab.input_value("#head"))
    assert pixel(tab, *middle(left, 3, 2)) == shade(float(w[*at, 3, 2]))
    assert pixel(tab, *middle(right, 3, 2), "#second") == shade(1 / 3)
    assert pixel(tab, *middle(right, 3, 0), "#second") == shade(0)
    hover(tab, *middle(right, 0, 1), "#second")
    assert tab.inner_text("#status").endswith("“the” (0) to “cat” (1): 50.0%")


PATTERNS = [
    "full()", "causal()", "window(3)", "window(0)", "dilated(2, 3)", "strided(4)", "fixed(4, 2)",
    "blocks(5)", "ring(2)", "prefix(4)", "global_tokens(2)", "global_tokens((0, 5, 9))",
    "longformer(2)", "longformer(2, 1, dilation=2)", "random_edges(3, seed=0)",
    "random_edges(2, seed=123456789012)", "bigbird(block=3, random=1, seed=0)",
    "bigbird(block=2, random=2, window=5, global_last=0, seed=7)", "window(2) | global_tokens(1)",
    "causal() & (window(4) | strided(8))", "~window(2)", "full() - causal()", "causal().T",
    "random_edges(2, seed=1).T", "window(1).power(3)", "causal().compose(window(1))",
    "window(1).shift(2)", "causal().shift(1, 0)", "extra_global_tokens(2, window(1))",
    "(ring(1) | random_edges(2, seed=0)) - global_tokens(1)", "causal() - window(2) & strided(3)",
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(chrome, tmp_path_factory):
    """A page whose script evaluates patterns."""
    path = view(window(1), n=8).save(tmp_path_factory.mktemp("engine") / "page.html")
    with chrome.new_context() as context:
        tab = context.new_page()
        tab.goto(path.as_uri())
        yield tab


@pytest.mark.parametrize("text", PATTERNS)
def test_the_page_computes_the_pairs_that_python_does(engine, text):
    pattern = parse(text)
    for n in (1, 2, 7, 24, 33):
        rows = engine.evaluate("([t, n]) => EdgewiseViewer.rowsOf(t, n)", [text, n])
        found = torch.zeros(n, n, dtype=torch.bool)
        for i, keys in enumerate(rows):
            assert keys == sorted(set(keys))
            found[i, keys] = True
        assert torch.equal(found, pattern.dense(n)), n


@pytest.mark.parametrize("text", [*PATTERNS[:5], *PATTERNS[7:20]])
def test_the_page_measures_as_python_does(engine, text):
    for n in (2, 24, 96):
        ours, theirs = (
            engine.evaluate("([t, n]) => EdgewiseViewer.measuresOf(t, n)", [text, n]),
            parse(text).stats(n),
        )
        assert ours["pairs"] == theirs.edges
        assert (math.inf if ours["layers"] is None else ours["layers"]) == theirs.layers
        assert ours["components"] == theirs.components
        assert ours["diameter"] == theirs.diameter
        if theirs.largest > 1:
            assert ours["gap"] == pytest.approx(theirs.gap, abs=2e-4)


def test_python_knows_what_the_page_knows(engine):
    assert set(engine.evaluate("EdgewiseViewer.words")) == KNOWN


def test_the_lab_follows_what_is_typed(opened):
    tab = opened(view(window(1), n=8))
    tab.click("#tab-lab")
    tab.fill("#pattern", "causal() & window(2)")
    settle(tab)
    numbers = dict(zip(*[iter(tab.inner_text("#measures").split("\n"))] * 2, strict=True))
    assert numbers["pairs"].startswith("93 ")
    assert numbers["hops to reach all"] == "never"
    assert float(numbers["spectral gap"]) == pytest.approx(
        parse("causal() & window(2)").stats(32).gap, abs=1e-4
    )
    f = frame(tab, "#lab-map")
    for i, j in ((9, 7), (9, 6), (9, 10)):
        inside = 7 <= j <= 9
        assert (pixel(tab, *middle(f, i, j), "#lab-map") != shade(0)) == inside
    tab.fill("#pattern", "windw(2)")
    settle(tab)
    assert "no pattern `windw`" in tab.inner_text("#problem")
    assert (
        tab.get_attribute("#lab-map", "data-pattern") == "causal() & window(2)"
    )  # the last that was one
    tab.select_option("#lab-size", str(65_536))
    tab.fill("#pattern", "causal().T")
    settle(tab)
    assert "at most 4096 tokens" in tab.inner_text("#problem")
    tab.select_option("#lab-size", str(1 << 20))
    tab.fill("#pattern", "window(20000) | global_tokens(1)")
    settle(tab)
    f = frame(tab, "#lab-map")
    assert pixel(tab, *middle(f, 500_000, 500_000), "#lab-map") != shade(0)
    assert pixel(tab, *middle(f, 500_000, 900_000), "#lab-map") == shade(0)


def test_hostile_texts_are_shown_and_do_nothing(opened):
    tokens = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\x00\x07\n",
              "\u202eabc", "“\"'&"]  # fmt: skip
    tab = opened(view([torch.eye(5)[None]], tokens=tokens, title="<b>&</script>"))
    assert tab.title() == "<b>&</script>"
    assert tab.locator("h1 b").count() == 0
    for i, start in enumerate(
        ["</script><script>alert", "<img src=x onerror=ale", "␀␇␊", "⟨202E⟩abc", "“\"'&"]
    ):
        tab.focus("#picture")
        tab.keyboard.press("ArrowRight")
        settle(tab)
        assert tab.inner_text("#status").startswith(f"“{start}"), i
    assert tab.locator("img").count() == 0


def test_everything_works_by_keyboard(opened):
    w = weights()
    tab = opened(view(list(w), tokens=WORDS))
    for key, view_ in zip("12345", ("graph", "map", "heads", "compare", "lab"), strict=True):
        tab.keyboard.press(key)
        settle(tab)
        assert tab.get_attribute(f"#tab-{view_}", "aria-selected") == "true"
    tab.keyboard.press("1")
    settle(tab)
    choose(tab, "layer", 0)
    choose(tab, "head", 0)
    tab.focus("#picture")
    tab.keyboard.press("]")
    settle(tab)
    tab.keyboard.press(".")
    settle(tab)
    assert (tab.input_value("#layer"), tab.input_value("#head")) == ("1", "1")
    tab.keyboard.press("t")
    settle(tab)
    assert tab.get_attribute("html", "data-theme") == "dark"
    unlabelled = tab.evaluate(
        "[...document.querySelectorAll('button,select,input,canvas')].filter(x => "
        "!x.textContent.trim() && !x.getAttribute('aria-label') && !x.labels?.length).length"
    )
    assert unlabelled == 0


def test_512_tokens_and_144_heads_open_in_two_seconds(opened, base_sized):
    _, page = base_sized
    assert len(page.html.encode()) <= 1_000_000
    tab = opened(page)
    assert int(tab.get_attribute("html", "data-ready")) < 2000
    tab.click("#tab-heads")
    settle(tab)
    assert tab.evaluate("document.querySelectorAll('*').length") < 400


def test_65536_tokens_are_tiles_then_edges(opened):
    n = 1 << 16
    q = torch.randn(1, n, 4, generator=torch.manual_seed(0))
    call = AttentionCall("a", q, q, window(8) | global_tokens(1))
    tab = opened(view(AttentionGraph(tuple(map(str, range(n))), (call,))))
    assert tab.get_attribute("#tab-map", "aria-selected") == "true"
    f = frame(tab)
    assert pixel(tab, *middle(f, n // 2, n // 2)) != shade(0)
    assert pixel(tab, *middle(f, n // 2, n // 4)) == shade(0)
    for _ in range(26):
        tab.click("#zoom-in")
    settle(tab)
    f = frame(tab)
    assert f["unit"] > 4
    hover(tab, *middle(f, int(f["y"]) + 3, int(f["x"]) + 3))
    assert "to “" in tab.inner_text("#status")


def test_every_view_of_a_million_tokens(opened):
    n = 1 << 20
    tab = opened(view(window(30_000) | global_tokens(4000), n=n))
    f = frame(tab)
    assert pixel(tab, *middle(f, n // 2, n // 2 + 20_000)) != shade(0)
    assert pixel(tab, *middle(f, n // 2, n // 4)) == shade(0)
    for name in ("heads", "graph", "compare", "map"):
        tab.click(f"#tab-{name}")
        settle(tab)
    for _ in range(36):
        tab.keyboard.press("+")
    settle(tab)
    assert frame(tab)["unit"] > 8
    hover(tab, *middle(frame(tab), int(frame(tab)["y"]) + 2, int(frame(tab)["x"]) + 2))
    assert tab.inner_text("#status").endswith("0.00%")  # one of 64,001 keys


def test_a_page_in_a_notebook(opened, tmp_path):
    path = tmp_path / "notebook.html"
    shown = view([torch.eye(5)[None]], tokens=WORDS, title="a cell")._repr_html_()
    path.write_text(
        f"<!doctype html><meta charset=utf-8><html data-ready>{shown}", encoding="utf-8"
    )
    tab = opened(path, framed=True)
    inner = tab.frames[1]
    inner.wait_for_selector("html[data-ready]", timeout=20_000)
    assert inner.inner_text("h1") == "a cell"


def test_a_damaged_page_says_so(opened, tmp_path):
    page = view(window(1), n=8)
    start = page.html.index('id="data">') + 30
    for name, html in {
        "changed": page.html[:start]
        + ("A" if page.html[start] != "A" else "B")
        + page.html[start + 1 :],
        "cut": page.html.replace(page.html[start : start + 60], ""),
        "not base64": page.html[:start] + "%" + page.html[start + 1 :],
    }.items():
        path = tmp_path / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        tab = opened(path, faulty=True)
        assert tab.inner_text("#damaged").startswith("This page is damaged"), name


def test_a_narrow_screen(opened):
    tab = opened(view(list(weights()), tokens=WORDS), width=390, height=844)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
