"""Pages about attention: `edgewise.view` and BertViz's `head_view`, of the same weights.

12 layers of 12 heads. Bytes of the page, process time to make it, and in Chromium, offline: when
the page is drawn (ours; a page of BertViz fetches its libraries from another host, and draws
nothing without them), and the requests that it makes.

`python bench/view.py [tokens ...]`; needs `bertviz` for the peer and chromium for the rest.
"""

import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from measure import skip, write

sys.path.insert(0, str(Path(__file__).parents[1]))
from edgewise import view
from tests.browser.chromium import browser, chromium

LAYERS = HEADS = 12
PEER_MOST = 256  # tokens: its page of more has over a gigabyte


def weights(n: int) -> list[torch.Tensor]:
    """As sharp as those of BERT: an entropy of about 3 nats at 512 tokens."""
    generator = torch.manual_seed(0)
    q = 1.6 * torch.randn(LAYERS, HEADS, n, 16, generator=generator)
    return list((0.25 * q @ q.flip(1).mT).softmax(-1))


def ours(w: list[torch.Tensor], tokens: list[str]) -> str:
    return view(w, tokens=tokens).html


def theirs(w: list[torch.Tensor], tokens: list[str]) -> str:
    from bertviz import head_view

    page: Any = head_view([layer[None] for layer in w], tokens, html_action="return")
    return str(page.data)


def made(make: Any, w: list[torch.Tensor], tokens: list[str]) -> tuple[str, dict[str, Any]]:
    start = time.process_time()
    page = make(w, tokens)
    seconds = time.process_time() - start
    return page, {"bytes": len(page.encode()), "cpu_s": round(seconds, 2)}


def opened(page: str, chrome: Any, drawn: str) -> dict[str, Any]:
    """Milliseconds until the page says that it is drawn, None if it never is; other requests."""
    requests: list[str] = []
    with tempfile.TemporaryDirectory() as folder, chrome.new_context(offline=True) as context:
        path = Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        tab = context.new_page()
        tab.on("request", lambda r: requests.append(r.url))
        start = time.perf_counter()
        tab.goto(path.as_uri(), timeout=180_000)
        try:
            tab.wait_for_selector(drawn, state="attached", timeout=10_000)
            passed: float | None = round(1e3 * (time.perf_counter() - start))
        except Exception:  # playwright's own timeout
            passed = None
        return {"drawn_ms": passed, "other_requests": len(requests) - 1}


def main() -> None:
    if not chromium():
        skip("chromium is not installed")
    results = []
    with browser() as chrome:
        for n in [int(x) for x in sys.argv[1:]] or [64, 128, 256, 512]:
            w, tokens = weights(n), [f"token{i}" for i in range(n)]
            page, row = made(ours, w, tokens)
            row |= opened(page, chrome, "html[data-ready]")
            peer: dict[str, Any] | None = None
            if find_spec("bertviz") is not None and n <= PEER_MOST:
                page, peer = made(theirs, w, tokens)
                peer |= opened(page, chrome, "svg text")
            results.append({"tokens": n, "heads": LAYERS * HEADS, "edgewise": row, "bertviz": peer})
            print(results[-1], flush=True)
    write("view", results)


if __name__ == "__main__":
    main()
