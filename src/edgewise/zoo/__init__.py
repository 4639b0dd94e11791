"""Models as rules, one file each: the rules, a `Config`, the paper and what it is equal to.

>>> from edgewise import zoo
>>> zoo.gcn.program(zoo.gcn.Config(inputs=8, outputs=4)).rules[-1]
R.out(V.I) <= (R.heard(V.I), W.bias[4,].filled(0.0))
"""

from edgewise.zoo import encoder, gat, gatv2, gcn, gin, graphsage, parts, rgcn

__all__ = ["MODELS", "encoder", "gat", "gatv2", "gcn", "gin", "graphsage", "parts", "rgcn"]

MODELS = (encoder, gcn, graphsage, gin, gat, gatv2, rgcn)
