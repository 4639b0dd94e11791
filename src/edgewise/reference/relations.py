"""Which atoms hold: relations as sets of keys, found by their bound positions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from edgewise.language.nodes import Constant

Key = tuple[Constant, ...]


class Relation:
    """A growing set of keys, indexed by whichever positions a join has bound."""

    def __init__(self) -> None:
        self.keys: dict[Key, None] = {}  # a set that remembers its order
        self._indices: dict[tuple[int, ...], dict[Key, list[Key]]] = {}

    def add(self, key: Key) -> bool:
        """Whether the key is new."""
        if key in self.keys:
            return False
        self.keys[key] = None
        for positions, index in self._indices.items():
            index[tuple(key[p] for p in positions)].append(key)
        return True

    def remove(self, key: Key) -> None:
        self.keys.pop(key, None)
        self._indices.clear()

    def find(self, positions: Sequence[int], values: Key) -> Iterable[Key]:
        """The keys with these values at these positions."""
        if not positions:
            return list(self.keys)
        where = tuple(positions)
        if where not in self._indices:
            index: dict[Key, list[Key]] = defaultdict(list)
            for key in self.keys:
                index[tuple(key[p] for p in where)].append(key)
            self._indices[where] = index
        return list(self._indices[where].get(values, ()))

    def length(self, position: int) -> int:
        """One more than the largest integer at a position: the length of that axis."""
        return max((k[position] + 1 for k in self.keys if isinstance(k[position], int)), default=0)  # type: ignore[operator]

    def __contains__(self, key: Key) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


Database = defaultdict[str, Relation]
