"""Scores of attention as values: functions of the dot product S and the places I, J, H."""

from edgewise.scores.library import alibi as alibi
from edgewise.scores.library import alibi_slopes as alibi_slopes
from edgewise.scores.library import exp as exp
from edgewise.scores.library import floor as floor
from edgewise.scores.library import log as log
from edgewise.scores.library import maximum as maximum
from edgewise.scores.library import minimum as minimum
from edgewise.scores.library import relative as relative
from edgewise.scores.library import scalar as scalar
from edgewise.scores.library import sigmoid as sigmoid
from edgewise.scores.library import softcap as softcap
from edgewise.scores.library import sqrt as sqrt
from edgewise.scores.library import t5_buckets as t5_buckets
from edgewise.scores.library import table as table
from edgewise.scores.library import tanh as tanh
from edgewise.scores.library import where as where
from edgewise.scores.score import H as H
from edgewise.scores.score import I as I
from edgewise.scores.score import J as J
from edgewise.scores.score import S as S
from edgewise.scores.score import Score as Score
