"""A hostile argument is taken or refused by an error of ours; anything else fails a test."""

from collections.abc import Callable
from typing import Any

from edgewise import EdgewiseError


def assert_taken_or_refused(call: Callable[[], Any]) -> Any:
    """What a call gives, or the error of ours that it raises, which must say what to do."""
    said = None
    try:
        return call()
    except EdgewiseError as error:
        said = error
    assert said.message
    assert said.help, said
    assert len(str(said)) < 2000
    return said
