"""What the pages promise of themselves; `make docs` runs their code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import blocks  # noqa: E402
import tables  # noqa: E402

GENERATED = {
    "api.md",
    "gallery.md",
    "functions.md",
    "graphs.md",
    "modules.md",
    "neuralogic.md",
    "specials.md",
}
FRONT = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = FRONT + [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.name not in GENERATED and path.parent.name not in ("errors", "gallery")
]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in LINK.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)):
        made = Path(target).name in GENERATED or "errors/" in target
        if "notebooks/" in target:
            made = (ROOT / "examples" / Path(target).name).exists()
        assert made or target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_is_plain(path):
    prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    assert not re.findall(r"\b(simply|just|powerful)\b", prose, flags=re.IGNORECASE)


def test_a_block_prints_its_output_and_its_errors():
    page = "```python\nprint(1 + 1)\n```\n\n```python\nfrom edgewise import R\nR.a(0.5)\n```\n"
    done = blocks.executed(page)
    assert "```text\n2\n```" in done
    assert "error[bad-term]" in done
    assert "example.py:3:1" in done
    assert blocks.executed(done) == done


def test_the_front_page_links_to_every_page():
    nav = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    links = LINK.findall((ROOT / "docs" / "index.md").read_text())
    assert len(nav) > 30
    assert [page for page in nav if page not in links and page != "index.md"] == []


SCALES = {  # a unit, and the units that results may have in its place
    "ms": (1, 1e-3), "µs": (1, 1e-6, 1e-3), "s": (1, 1e3), "MB": (1, 1e6), "GB": (1, 1e9),
    "GiB": (1, 2**30), "×": (1,), "times": (1,),
}  # fmt: skip
MEASURED = re.compile(r"(?<![\w.,])(\d[\d,]*\.?\d*)\s?(ms|µs|s|MB|GB|GiB|×|times)(?!\w)")


def numbers(thing):
    """All numbers in a result."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, list):
        return [number for item in thing for number in numbers(item)]
    return [thing] if isinstance(thing, int | float) else []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_numbers_beside_a_benchmark_are_those_of_its_results(path):
    prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for part in re.split(r"\n\s*\n|\n- |\n\|", prose):
        names = set(re.findall(r"bench/(?:results/)?(\w+)\.(?:py|json)", part))
        assert all((ROOT / "bench" / f"{name}.py").exists() for name in names), names
        files = [ROOT / "bench" / "results" / f"{name}.json" for name in sorted(names)]
        held = [
            number
            for file in files
            if file.exists()
            for number in numbers(json.loads(file.read_text())["results"])
        ]
        for said, unit in MEASURED.findall(re.sub(r"`[^`]*`", "", part)) if held else []:
            value, places = float(said.replace(",", "")), len(said.partition(".")[2])
            near = 0.5 * 10**-places + 1e-9
            found = any(abs(n / scale - value) <= near for n in held for scale in SCALES[unit])
            assert found, f"{said} {unit} is not in the results of {names}"


def test_every_special_predicate_has_a_meaning():
    assert set(tables.SPECIAL_MEANINGS) == set(tables.SPECIALS)


def test_a_release_has_the_lines_of_all_fragments():
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "1.2.3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "## 1.2.3 (" in done
    for path in (ROOT / "changes").glob("*.md"):
        assert path.read_text(encoding="utf-8").split("\n")[0][:60] in done, path.name


def test_every_change_is_a_short_fragment():
    for path in (ROOT / "changes").glob("*.md"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 3, path.name
