"""A layer of a Hugging Face cache that evicts keys. Imported when the first one is made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from edgewise.errors import caller
from edgewise.graphs import full
from edgewise.hf.errors import EvictedKeys
from edgewise.hf.eviction import Graph, other_graph, retained_positions


class EvictingLayer(DynamicLayer):
    """Keys and values of the positions that later tokens can attend to."""

    is_croppable = False
    keys: Any
    values: Any

    def __init__(self) -> None:
        super().__init__()
        self.graph: Graph = full()
        self.starts = frozenset({0})
        self.seen = 0
        self.positions = torch.empty(0, dtype=torch.long)
        self.record_past = False  # tokens may be taken back until `crop`
        self.expected = False  # set by `install` for the next update

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]

    @torch.compiler.disable
    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """The retained keys and values, and the new ones; the layer then evicts."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        n = key_states.shape[-2]
        if not self.expected and len(self.positions) < self.seen:
            raise other_graph(self.graph)
        self.expected = False
        before = retained_positions(self.graph, self.seen, self.starts)
        extra = before is not None and len(before) < len(self.positions)
        held: Any = self._held(before) if extra and before is not None else slice(None)
        returned = (
            torch.cat([self.keys[:, :, held], key_states], -2),
            torch.cat([self.values[:, :, held], value_states], -2),
        )
        new = torch.arange(self.seen, self.seen + n)
        if self.record_past:
            self.keys = torch.cat([self.keys, key_states], -2)
            self.values = torch.cat([self.values, value_states], -2)
        else:
            self.keys, self.values = returned
            self.positions = self.positions if before is None else before
        self.positions = torch.cat([self.positions, new])
        self.seen += n
        if not self.record_past:
            self._evict()
        return returned

    def _held(self, positions: Tensor) -> Tensor:
        """Where `positions` are among the cached ones."""
        found = torch.searchsorted(self.positions, positions).clamp_max(len(self.positions) - 1)
        enough = len(positions) <= len(self.positions)
        if not enough or not torch.equal(self.positions[found], positions):
            raise EvictedKeys(
                "tokens were removed from a cache that evicts keys",
                caller(),
                "call `cache.activate_past_recording()` before, or start with a new cache",
            )
        return found.to(self.keys.device)

    def _evict(self) -> None:
        needed = retained_positions(self.graph, self.seen, self.starts)
        if needed is not None and len(needed) < len(self.positions):
            held = self._held(needed)
            self.keys, self.values = self.keys[:, :, held], self.values[:, :, held]
            self.positions = needed

    def get_seq_length(self) -> int:
        return self.seen

    def activate_past_recording(self) -> None:
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        count = abs(tokens_to_remove)
        if not self.is_initialized:
            return
        left = self.positions < self.seen - count
        self.seen -= count
        self.positions = self.positions[left]
        self.keys = self.keys[:, :, : len(self.positions)]
        self.values = self.values[:, :, : len(self.positions)]
        needed = retained_positions(self.graph, self.seen, self.starts)
        self._held(torch.arange(self.seen) if needed is None else needed)
        self._evict()

    def reset(self) -> None:
        super().reset()
        self.seen, self.positions = 0, torch.empty(0, dtype=torch.long)
