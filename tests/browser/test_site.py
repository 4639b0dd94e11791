"""The built documentation, read as a visitor does. `make site` builds it and runs this."""

import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser.chromium import SITE, browser, chromium, served

if not os.environ.get("EDGEWISE_SITE"):
    pytest.skip("the built site is tested by `make site`", allow_module_level=True)

WORDS = {  # what a visitor types, and a page that must be among the first answers
    "install": "how-to/install.html",
    "sliding window": "explanation/windows.html",
    "sinks": "notebooks/longer-context.html",
    "pandas": "how-to/data.html",
    "missing value": "how-to/data.html",
    "temperature": "how-to/attention-function.html",
    "generate text": "how-to/hugging-face.html",
    "FlexAttention": "how-to/coming-from.html",
    "padding": "how-to/hugging-face.html",
    "DuckDB": "how-to/big-joins.html",
    "dates": "notebooks/graph-from-tables.html",
    "shape-mismatch": "reference/errors/shape-mismatch.html",
    "LoRA": "how-to/hugging-face.html",
    "duplicates": "how-to/inputs.html",
    "resume": "how-to/train-a-recipe.html",
    "BERT": "gallery/bert.html",
    "multi GPU": "how-to/recipes-on-ranks.html",
    "molecules": "gallery/11_molecules.html",
    "why": "how-to/why-and-draw.html",
    "checkpoint": "how-to/checkpoints.html",
    "BigBird": "gallery/bigbird.html",
    "ragged": "how-to/inputs.html",
    "export": "how-to/use-a-run.html",
    "GCNConv": "reference/neuralogic.html",
}
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))


class Reader(HTMLParser):
    """The links and the places of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links, self.places = [], set()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


@pytest.fixture(scope="module")
def address():
    with served(SITE) as found:
        yield found


@pytest.fixture(scope="module")
def chrome():
    assert chromium(), "install Debian's chromium"
    with browser() as found:
        yield found


def test_every_internal_link_is_alive():
    readers = {page: read(SITE / page) for page in PAGES}
    assert len(readers) > 100
    dead = []
    for page, reader in readers.items():
        for link in reader.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//") or page == "404.html":
                continue
            place = unquote(parts.path)
            target = SITE / page if not place else (SITE / page).parent / place
            target = target / "index.html" if target.is_dir() else target
            name = str(target.resolve().relative_to(SITE.resolve()))
            anchor = unquote(parts.fragment)
            known = readers.get(name)
            if not target.exists() or (anchor and known and anchor not in known.places):
                dead.append((page, link))
    assert dead == []


def test_pages_ask_no_other_host_and_log_no_errors(chrome, address):
    page, faults = chrome.new_page(), []
    page.on("console", lambda m: faults.append((page.url, m.text)) if m.type == "error" else None)
    page.on("pageerror", lambda error: faults.append((page.url, str(error))))
    page.on(
        "request",
        lambda r: None if r.url.startswith((address, "data:")) else faults.append(r.url),
    )
    for name in [page for page in PAGES if page != "404.html"]:
        assert page.goto(f"{address}/{name}").ok
    assert faults == []


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_a_screen(chrome, address, width):
    alike = [name for name in PAGES if name.startswith(("gallery/", "reference/errors/"))]
    with chrome.new_context(viewport={"width": width, "height": 844}) as context:
        page = context.new_page()
        for name in sorted(set(PAGES) - set(alike[3:])):
            page.goto(f"{address}/{name}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            clipped = page.evaluate(
                "[...document.querySelectorAll("
                "'.highlight:not(.language-text) code, .highlight-ipynb pre')]"
                ".filter(x => x.scrollWidth > x.clientWidth + 2).length"
            )
            assert clipped == 0, name


def test_every_card_of_the_gallery_has_a_picture(chrome, address):
    with chrome.new_context() as context:
        page = context.new_page()
        page.goto(f"{address}/gallery.html")
        cards = page.eval_on_selector_all(".gallery .card", "all => all.length")
        page.evaluate("document.querySelectorAll('img').forEach(x => x.loading = 'eager')")
        page.wait_for_function("[...document.images].every(x => x.complete)")
        drawn = page.evaluate("[...document.images].filter(x => x.naturalWidth > 0).length")
    assert drawn == cards > 50


@pytest.mark.parametrize("name", sorted(p.stem for p in (SITE / "notebooks").glob("*.html")))
def test_notebooks_show_what_they_computed(chrome, address, name):
    with chrome.new_context() as context:
        page = context.new_page()
        page.goto(f"{address}/notebooks/{name}.html")
        outputs = page.eval_on_selector_all(".jp-OutputArea-output", "all => all.length")
        assert outputs >= 4
        assert page.eval_on_selector_all("[data-mime-type*='stderr']", "all => all.length") == 0
        text = page.inner_text("article")
    assert "Traceback" not in text
    assert "<Figure" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_notebook_shows_a_view_in_the_theme_of_the_page(chrome, address, scheme):
    with chrome.new_context(color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(f"{address}/notebooks/attention-ideas.html")
        page.locator("iframe").scroll_into_view_if_needed()  # frames out of sight do not run
        frame = page.frame_locator("iframe")
        frame.locator(f"html[data-ready][data-theme={scheme}]").wait_for()
        assert frame.locator("canvas").first.is_visible()


@pytest.mark.parametrize("words", WORDS)
def test_search_answers(chrome, address, words):
    with chrome.new_context() as context:
        page = context.new_page()
        page.goto(f"{address}/index.html")
        page.click(".md-search__input")
        page.keyboard.type(words)
        page.wait_for_selector(".md-search-result__link", timeout=60_000)
        found = page.eval_on_selector_all(
            ".md-search-result__item > .md-search-result__link", "all => all.map(x => x.href)"
        )
    assert any(WORDS[words] in link for link in found[:10]), found[:10]
