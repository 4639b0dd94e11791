"""The command `edgewise`: one file per verb (subcommand).

To add a verb, write `cli/<verb>.py` with a function of the same name, and add it to VERBS. A verb
imports torch and models when it runs, not when its file is imported: `--help` takes no longer than
typer does.
"""

import ast
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import Caller, EdgewiseError, coloured, suggest

if TYPE_CHECKING:
    import typer

VERBS = (
    *("graph", "models", "train", "compare", "generate", "translate", "classify", "embed", "parse"),
    *(
        "search",
        "predict",
        "why",
        "evaluate",
        "export",
        "prune",
        "push",
        "check",
        "solve",
        "draw",
        "explain",
        "view",
        "scale",
    ),
)
BAD_INPUT = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code; user errors are printed without a traceback."""
    for name in ("typer", "rich"):
        if find_spec(name) is None:
            print(f"the command needs {name}: pip install 'edgewise[cli]'", file=sys.stderr)
            return BAD_INPUT
    # threads that wait for others sleep: spinning takes the cores that the others need
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return _app()(arguments, standalone_mode=True) or 0
    except EdgewiseError as error:
        if isinstance(error.place, Caller):
            error.place = None  # a place in our Python, not in the user's command
        _say(error)
        return BAD_INPUT
    except OSError as problem:  # a full disk behind `> file`, a folder that may not be read
        about = f"`{problem.filename}`: " if problem.filename else ""
        print(f"error: {about}{problem.strerror or problem}", file=sys.stderr)
        return BAD_INPUT
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else BAD_INPUT


def _say(error: EdgewiseError) -> None:
    """Print an error: of a run on many ranks the first prints all, others what is their own."""
    rank = os.environ.get("RANK", "0") if os.environ.get("WORLD_SIZE", "1") != "1" else "0"
    if rank != "0":
        if error.code != "rank-failed":
            print(f"rank {rank}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return
    shows_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(coloured(str(error)) if shows_colour else error, file=sys.stderr)


def _app() -> "typer.Typer":
    import typer

    app = typer.Typer(
        cls=_verbs(), pretty_exceptions_enable=False, no_args_is_help=True,
        help="Networks over structured data as weighted rules.",
    )  # fmt: skip

    @app.callback(invoke_without_command=True)
    def root(
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            print(sys.modules["edgewise"].__version__)
            raise typer.Exit

    return app


def _verbs() -> type:
    """A group whose list of verbs is read from their files; only the verb that runs is imported."""
    import typer
    from typer.core import TyperGroup

    class Verbs(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(VERBS)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return (
                _command(cmd_name, lambda: None, summary(cmd_name)) if cmd_name in VERBS else None
            )

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in VERBS and not args[0].startswith("-"):
                ctx.fail(f"there is no verb `{args[0]}`; {suggest(args[0], VERBS)}")
            name, command, rest = super().resolve_command(ctx, args)
            if name in VERBS:
                command = _command(name, getattr(import_module(f"edgewise.cli.{name}"), name))
            return name, command, rest

    def _command(name: str, function: Any, help: str | None = None) -> Any:
        app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        app.command(name, help=help)(function)
        return typer.main.get_command(app)

    return Verbs


def summary(verb: str) -> str:
    """The first line of a verb's docstring.

    >>> summary("push")
    'Prepare a folder for the hub: the model, its card and what was measured; nothing is sent.'
    """
    tree = ast.parse(Path(__file__).with_name(f"{verb}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    found = next(node for node in functions if node.name == verb)
    return (ast.get_docstring(found) or "").partition("\n")[0]
