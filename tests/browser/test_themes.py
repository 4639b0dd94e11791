"""Drawings and figures inside of a page are light or dark as the page is, in a real browser."""

import pytest

from edgewise import Program, R, V
from edgewise.graphs import window
from tests.browser.chromium import browser, chromium

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 27, 34)"
GROUND = "getComputedStyle(document.querySelector('.ground')).fill"
FILTER = "getComputedStyle(document.querySelector('.edgewise-figure')).filter"


@pytest.fixture(scope="module")
def chrome():
    if chromium() is None:
        pytest.skip("Debian's chromium is not installed")
    with browser() as found:
        yield found


@pytest.mark.parametrize(
    ("body", "system", "is_dark"),
    [
        ("", "light", False),
        ("", "dark", True),
        ("data-jp-theme-light=false", "light", True),  # JupyterLab
        ("data-jp-theme-light=true", "dark", False),
        ("data-md-color-scheme=slate", "light", True),  # Material for MkDocs
        ("data-md-color-scheme=default", "dark", False),
        ("class=vscode-dark", "light", True),
        ("class=vscode-light", "dark", False),
    ],
)
def test_a_picture_has_the_theme_of_its_page(chrome, body, system, is_dark):
    svg = Program([R.h(V.I) <= R.x(V.I)[2, 2]]).draw()._repr_svg_()
    page = chrome.new_page(color_scheme=system)
    page.set_content(f"<!doctype html><body {body}>{svg}{window(1).plot(4)._repr_html_()}")
    assert page.evaluate(GROUND) == (DARK if is_dark else LIGHT)
    assert page.evaluate(FILTER) == ("invert(1) hue-rotate(180deg)" if is_dark else "none")
    page.close()
