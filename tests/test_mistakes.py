"""What a newcomer is told about every mistake in tests/mistakes.py can be acted on."""

import re

import pytest
from error_pages import errors
from mistakes import MISTAKES


def test_there_are_forty():
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_it_is_told(mistake):
    found = errors.diagnostics(mistake.source)
    assert {one.code for one in found} == {mistake.code}
    text = str(found[0])
    for words in mistake.says:
        assert words in text
    assert found[0].help
    assert re.search(r"\n +\| +\^+\n", text), "no caret"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_nothing_of_the_inside_shows(mistake):
    text = str(errors.diagnostics(mistake.source)[0])
    assert not re.search(
        r"edgewise\.(?!graphs)|Traceback|nodes\.|Opaque|Apply|None\b|0x[0-9a-f]+", text
    )
    assert "src/edgewise" not in text
