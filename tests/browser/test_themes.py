"""Drawings inside of a page are light or dark as the page is, in a real browser."""

import pytest

from edgewise import Program, R, V
from tests.browser.chromium import browser, chromium

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 27, 34)"
GROUND = "getComputedStyle(document.querySelector('.ground')).fill"


@pytest.fixture(scope="module")
def chrome():
    if chromium() is None:
        pytest.skip("Debian's chromium is not installed")
    with browser() as found:
        yield found


@pytest.mark.parametrize(
    ("body", "system", "colour"),
    [
        ("", "light", LIGHT),
        ("", "dark", DARK),
        ("data-jp-theme-light=false", "light", DARK),  # JupyterLab
        ("data-jp-theme-light=true", "dark", LIGHT),
        ("data-md-color-scheme=slate", "light", DARK),  # Material for MkDocs
        ("data-md-color-scheme=default", "dark", LIGHT),
        ("class=vscode-dark", "light", DARK),
        ("class=vscode-light", "dark", LIGHT),
    ],
)
def test_a_drawing_has_the_theme_of_its_page(chrome, body, system, colour):
    svg = Program([R.h(V.I) <= R.x(V.I)[2, 2]]).draw()._repr_svg_()
    page = chrome.new_page(color_scheme=system)
    page.set_content(f"<!doctype html><body {body}>{svg}")
    assert page.evaluate(GROUND) == colour
    page.close()
