"""The graph networks of the zoo by name: each module has a `Network` and `network(config)`."""

from types import ModuleType

from edgewise.zoo import gat, gatv2, gcn, gin, gine, gps, graphsage

GRAPH_MODELS: dict[str, ModuleType] = {
    "gcn": gcn,
    "graphsage": graphsage,
    "gin": gin,
    "gine": gine,
    "gat": gat,
    "gatv2": gatv2,
    "gps": gps,
}
