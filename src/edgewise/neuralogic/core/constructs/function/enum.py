"""The functions by name: `Transformation.TANH`, `Combination.PRODUCT`, `F.avg_agg`."""

from __future__ import annotations

from edgewise.neuralogic.core.constructs.function.function import (
    AggregationFunction,
    CombinationFunction,
    ConcatAggregation,
    ConcatCombination,
    LeakyRelu,
    Reshape,
    Slice,
    SoftmaxAggregation,
    TransformationFunction,
)


class Transformation:
    """Functions of one value.

    >>> from edgewise.neuralogic import R, V
    >>> print(R.h(V.X) <= Transformation.TANH(R.x(V.X)))
    h(X) :- tanh(x(X)).
    """

    SIGMOID = TransformationFunction("sigmoid")
    TANH = TransformationFunction("tanh")
    SIGNUM = TransformationFunction("signum")
    RELU = TransformationFunction("relu")
    LEAKY_RELU = LeakyRelu("leakyrelu", "leaky_relu")
    LUKASIEWICZ = TransformationFunction("lukasiewicz")
    EXP = TransformationFunction("exp")
    SQRT = TransformationFunction("sqrt")
    INVERSE = TransformationFunction("inverse")
    REVERSE = TransformationFunction("reverse")
    LOG = TransformationFunction("log")
    IDENTITY = TransformationFunction("identity")
    TRANSP = TransformationFunction("transpose", "transp")
    SOFTMAX = TransformationFunction("softmax")
    SPARSEMAX = TransformationFunction("sparsemax")
    NORM = TransformationFunction("norm")
    SLICE = Slice("slice")
    RESHAPE = Reshape("reshape")


class Combination:
    """Functions of the values of a body, or of the rules of a relation.

    >>> from edgewise.neuralogic import R, V
    >>> print((R.h(V.X) <= (R.x(V.X), R.y(V.X))) | [Combination.PRODUCT])
    h(X) :- x(X), y(X). [combination=product]
    """

    AVG = CombinationFunction("avg")
    MAX = CombinationFunction("max")
    MIN = CombinationFunction("min")
    SUM = CombinationFunction("sum")
    COUNT = CombinationFunction("count")
    PRODUCT = CombinationFunction("product")
    ELPRODUCT = CombinationFunction("elproduct")
    SOFTMAX = CombinationFunction("softmax", "softmax_comb")
    SPARSEMAX = CombinationFunction("sparsemax", "sparsemax_comb")
    CROSSSUM = CombinationFunction("crosssum", "crossum")
    CONCAT = ConcatCombination("concat")
    COSSIM = CombinationFunction("cossim")


class Aggregation:
    """Functions of the values of all groundings of a rule.

    >>> from edgewise.neuralogic import R, V
    >>> print((R.h(V.X) <= R.x(V.Y)) | [Aggregation.MAX])
    h(X) :- x(Y). [aggregation=max]
    """

    AVG = AggregationFunction("avg", "avg_agg")
    MAX = AggregationFunction("max", "max_agg")
    MIN = AggregationFunction("min", "min_agg")
    SUM = AggregationFunction("sum", "sum_agg")
    COUNT = AggregationFunction("count", "count_agg")
    CONCAT = ConcatAggregation("concat", "concat_agg")
    SOFTMAX = SoftmaxAggregation("softmax", "softmax_agg")


class F:
    """All functions under short names; combinations have no suffix, aggregations `_agg`.

    >>> from edgewise.neuralogic import R, V
    >>> print((R.h(V.X) <= R.x(V.X)) | [F.tanh, F.max_agg])
    h(X) :- x(X). [transformation=tanh, aggregation=max]
    """

    sigmoid = Transformation.SIGMOID
    tanh = Transformation.TANH
    signum = Transformation.SIGNUM
    relu = Transformation.RELU
    leaky_relu = Transformation.LEAKY_RELU
    lukasiewicz = Transformation.LUKASIEWICZ
    exp = Transformation.EXP
    sqrt = Transformation.SQRT
    inverse = Transformation.INVERSE
    reverse = Transformation.REVERSE
    log = Transformation.LOG
    identity = Transformation.IDENTITY
    transp = Transformation.TRANSP
    softmax = Transformation.SOFTMAX
    sparsemax = Transformation.SPARSEMAX
    norm = Transformation.NORM
    slice = Transformation.SLICE
    reshape = Transformation.RESHAPE
    avg = Combination.AVG
    max = Combination.MAX
    min = Combination.MIN
    sum = Combination.SUM
    count = Combination.COUNT
    product = Combination.PRODUCT
    elproduct = Combination.ELPRODUCT
    softmax_comb = Combination.SOFTMAX
    sparsemax_comb = Combination.SPARSEMAX
    crossum = Combination.CROSSSUM
    concat = Combination.CONCAT
    cossim = Combination.COSSIM
    avg_agg = Aggregation.AVG
    max_agg = Aggregation.MAX
    min_agg = Aggregation.MIN
    sum_agg = Aggregation.SUM
    count_agg = Aggregation.COUNT
    concat_agg = Aggregation.CONCAT
    softmax_agg = Aggregation.SOFTMAX
