"""What can be wrong when rules run on many ranks."""

from edgewise.errors import EdgewiseError, caller


class BadShards(EdgewiseError):
    """Every rank must have the rows of its tokens: as many as `Shards` say."""

    code = "bad-shards"
    example = "from edgewise.distributed import Shards\nShards(8, 2).tokens(2)"
    instead = "from edgewise.distributed import Shards\nShards(8, 2).tokens(1)"


class BadMesh(EdgewiseError):
    """A mesh is one axis of a `DeviceMesh` of torch.distributed, on which this process has a
    rank."""

    code = "bad-mesh"
    example = "attention(q, k, v, window(3), mesh=4)"
    instead = "attention(q, k, v, window(3))"


class RanksDiffer(EdgewiseError):
    """All ranks must make the same call: the same graph, shapes and options."""

    code = "ranks-differ"
    example = "attention(q, k, v, window(3 + rank), mesh=mesh)  # on two ranks"
    instead = "attention(q, k, v, window(3), mesh=mesh)"


class RankFailed(EdgewiseError):
    """What ends one rank ends all: the others say which it was and why."""

    code = "rank-failed"
    example = 'training.train(recipe, "run")  # on two ranks, one of which has no data'
    instead = 'training.train(recipe, "run")  # on two ranks with the same data'


class NotDistributed(EdgewiseError):
    """Some calls of one process have no counterpart on many ranks."""

    code = "not-distributed"
    example = (
        "from edgewise.distributed import on_mesh\n"
        "program = Program([R.h(V.I) <= R.x(V.I), R.g(V.I) <= R.h(V.I)])\n"
        "on_mesh(program.compile([R.h, R.g]), mesh=None)"
    )
    instead = "Program([R.h(V.I) <= R.x(V.I), R.g(V.I) <= R.h(V.I)]).compile(R.g)"


def not_compiled(item: object) -> NotDistributed:
    """The error about something in the place of a model."""
    return NotDistributed(
        f"expected a compiled model, got {type(item).__name__}",
        caller(),
        "compile a program first: `program.compile(R.out)`",
    )
