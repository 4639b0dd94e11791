"""The pictures of docs/how-to/view.md: `python docs/screenshots.py` draws them again.

They need Debian's chromium and the checkpoint `all-minilm-l6-v2`.
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
from tests.browser.chromium import browser  # noqa: E402

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


def shrink(path: Path) -> None:
    """To 128 colours, which these pictures hardly exceed."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


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
    main()
