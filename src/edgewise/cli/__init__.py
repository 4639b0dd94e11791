"""The command `edgewise`: one file per verb (subcommand).

To add a verb, write `cli/<verb>.py` with a function of the same name, and add it to VERBS.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from edgewise.errors import Caller, EdgewiseError

if TYPE_CHECKING:
    import typer

VERBS = (
    *(
        "graph",
        "models",
        "train",
        "compare",
        "generate",
        "translate",
        "classify",
        "embed",
        "search",
    ),
    *("evaluate", "export", "push"),
)
BAD_INPUT = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code; user errors are printed without a traceback."""
    for name in ("typer", "rich"):
        if find_spec(name) is None:
            print(f"the command needs {name}: pip install 'edgewise[cli]'", file=sys.stderr)
            return BAD_INPUT
    try:
        return _app()(arguments, standalone_mode=True) or 0
    except EdgewiseError as error:
        if isinstance(error.place, Caller):
            error.place = None  # a place in our Python, not in the user's command
        print(error, file=sys.stderr)
        return BAD_INPUT
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else BAD_INPUT


def _app() -> "typer.Typer":
    import typer

    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
        help="Networks over structured data as weighted rules.",
    )  # fmt: skip
    for verb in VERBS:
        app.command()(getattr(import_module(f"edgewise.cli.{verb}"), verb))

    @app.callback(invoke_without_command=True)
    def root(
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            print(sys.modules["edgewise"].__version__)
            raise typer.Exit

    return app
