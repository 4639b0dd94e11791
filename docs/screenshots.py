"""The pictures of docs/how-to/view.md and of the documentation itself in the README.

`python docs/screenshots.py` draws them again, `python docs/screenshots.py site` those of the site
that `make docs` built. They need Debian's chromium, the first also `all-minilm-l6-v2`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "docs" / "assets"
sys.path.insert(0, str(ROOT))

from edgewise import attention_graph, view, zoo  # noqa: E402
from edgewise.graphs import global_tokens, window  # noqa: E402
from tests.browser.chromium import SITE, browser, served  # noqa: E402

TEXT = "The orchestra played the old waltz until the audience asked for it again."
SIZE = {"width": 1120, "height": 640}


def pages() -> dict[str, Path]:
    """The pages to photograph, saved."""
    model = zoo.from_pretrained(zoo.fetch("all-minilm-l6-v2"))
    folder = Path(tempfile.mkdtemp())
    beside = window(2) | global_tokens(1)
    made = {
        "text": view(model, TEXT, beside=beside, title="all-minilm-l6-v2"),
        "long": view(attention_graph(model, long_text(), truncate=True), title="512 tokens"),
    }
    return {name: page.save(folder / f"{name}.html") for name, page in made.items()}


def long_text() -> str:
    from edgewise.demo.checkpoint import LINES

    return " ".join(LINES * 2)


def take(tab: Any, name: str) -> None:
    tab.wait_for_timeout(250)
    path = ASSETS / f"view-{name}.png"
    tab.screenshot(path=str(path))
    shrink(path)


def shrink(path: Path, colours: int = 128) -> None:
    """To some colours, which these pictures hardly exceed."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(colours).save(path, optimize=True)


SHOWN = (  # page, scheme, width: side by side in one picture
    ("index", "light", 1280),
    ("gallery", "dark", 1280),
    ("reference/api", "light", 390),
    ("benchmarks", "dark", 390),
    ("notebooks/explain-and-why", "dark", 1280),
)


def site() -> None:
    """The landing page, the gallery, the API and an executed notebook, in `site.png`."""
    from PIL import Image

    folder, shots = Path(tempfile.mkdtemp()), []
    with served(SITE) as address, browser() as chrome:
        for name, scheme, width in SHOWN:
            size = {"width": width, "height": 900}
            tab = chrome.new_context(viewport=size, color_scheme=scheme).new_page()
            tab.goto(f"{address}/{name}.html")
            tab.wait_for_timeout(500)
            path = folder / f"{len(shots)}.png"
            tab.screenshot(path=str(path))
            shots.append(Image.open(path).convert("RGB"))
    whole = Image.new("RGB", (sum(shot.width for shot in shots) + 20 * len(shots), 900), "#8c959f")
    left = 10
    for shot in shots:
        whole.paste(shot, (left, 0))
        left += shot.width + 20
    path = ASSETS / "site.png"
    whole.resize((whole.width * 2 // 5, 360), Image.Resampling.LANCZOS).save(path)
    shrink(path, 256)  # both themes


def main() -> None:
    saved = pages()
    with browser() as chrome:
        for scheme in ("light", "dark"):
            tab = chrome.new_context(viewport=SIZE, color_scheme=scheme).new_page()
            tab.goto(saved["text"].as_uri())
            tab.wait_for_selector("html[data-ready]")
            if scheme == "dark":
                tab.focus("#picture")
                for _ in range(8):
                    tab.keyboard.press("ArrowRight")
                tab.fill("#threshold", "0.3")
                for _ in range(3):
                    tab.click("#hop-next")
                take(tab, "hops")
                continue
            tab.focus("#picture")
            for _ in range(10):
                tab.keyboard.press("ArrowRight")
            take(tab, "graph")
            tab.click("#tab-map")
            take(tab, "map")
            tab.click("#tab-compare")
            take(tab, "compare")
            tab.click("#tab-lab")
            take(tab, "lab")
            tab.goto(saved["long"].as_uri())
            tab.wait_for_selector("html[data-ready]")
            tab.click("#tab-heads")
            take(tab, "heads")


if __name__ == "__main__":
    site() if sys.argv[1:] == ["site"] else main()
