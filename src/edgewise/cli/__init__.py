"""The command `edgewise`: one file per verb."""

import sys
from importlib.util import find_spec

from edgewise.errors import Caller, EdgewiseError

BAD_INPUT = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a mistake of the user's is shown as it is, without a traceback."""
    for name in ("typer", "rich"):
        if find_spec(name) is None:
            print(f"the command needs {name}: pip install 'edgewise[demo]'", file=sys.stderr)
            return BAD_INPUT
    from edgewise.cli.app import app

    try:
        return app(arguments, standalone_mode=True) or 0
    except EdgewiseError as error:
        if isinstance(error.place, Caller):
            error.place = None  # a place in Python, and the user wrote none
        print(error, file=sys.stderr)
        return BAD_INPUT
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else BAD_INPUT
