"""What can be wrong with the ranks of a run."""

from edgewise.errors import EdgewiseError


class RankMissing(EdgewiseError):
    """All ranks of a run start together: one that is missing ends the others."""

    code = "rank-missing"
    example = 'training.train(recipe, "run")  # on two ranks, one of which does not start'
    instead = 'training.train(recipe, "run")  # on two ranks, by torchrun --nproc-per-node 2'


class RankFailed(EdgewiseError):
    """What ends one rank ends all: the first of them says which it was and why."""

    code = "rank-failed"
    example = 'training.train(recipe, "run")  # on two ranks, one of which has no data'
    instead = 'training.train(recipe, "run")  # on two ranks with the same data'
