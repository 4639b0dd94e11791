"""A few random programs in every mode; `python -m tests.properties.fuzz` runs as many as wanted."""

import pytest

from tests.properties.fuzz import report, run, smallest
from tests.properties.modes import MODES, SLOW

QUICK = [mode for mode in MODES if mode not in SLOW]


@pytest.mark.parametrize("part", range(4))
def test_every_mode_gives_what_the_oracle_gives(part):
    counted, different = run(range(1000 * part, 1000 * part + 10), QUICK, each=7)
    assert not different, "\n\n".join(
        report(mode, *smallest(mode, trial, found, seconds=20)) for mode, trial, found in different
    )
    assert sum(n for (_, result), n in counted.items() if result == "same") > 25


def test_compiled_and_exported_models_give_what_the_oracle_gives():
    counted, different = run(range(6), SLOW, each=1)
    assert not different, different
    assert sum(n for (_, result), n in counted.items() if result == "same") > 1


@pytest.mark.parametrize("seed", [880310, 880324])  # a key that is compared is negative
def test_programs_that_once_differed(seed):
    counted, different = run([seed], ["several"])
    assert not different, different
    assert counted["several", "same"] == 1
