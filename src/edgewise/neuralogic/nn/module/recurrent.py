"""Recurrent networks over time: state 0 is an input, state T follows from T − 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.neuralogic.core.constructs.factories import R, V
from edgewise.neuralogic.core.constructs.function import Combination, Function, Transformation
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.nn.module.module import Entry, TemplateModule, atom, refuse_unread, terms

NEXT = "_next__positive"
STEP = R.special.next(V.Z, V.T)


@dataclass(eq=False, repr=False)
class RNNCell(TemplateModule):
    """h(T) = f(W·x(T) + U·state(T − 1))."""

    input_size: int
    hidden_size: int
    output_name: str
    input_name: str
    hidden_input_name: str
    activation: Function = Transformation.TANH
    arity: int = 1

    def __call__(self) -> list[Entry]:
        now, before = [*terms(self.arity), V.T], [*terms(self.arity), V.Z]
        new = atom(self.input_name, now)[self.hidden_size, self.input_size]
        old = atom(self.hidden_input_name, before)[self.hidden_size, self.hidden_size]
        rule = atom(self.output_name, now) <= (new, old, STEP)
        return [rule | Metadata(transformation=self.activation)]


class RecurrentModule(TemplateModule):
    """What recurrent networks have in common: the state at 0."""

    input_size: int
    hidden_size: int
    output_name: str
    input_name: str
    hidden_0_name: str
    arity: int

    def _first(self, name: str, source: str) -> Any:
        keys = terms(self.arity)
        return atom(name, [*keys, 0]) <= atom(source, keys)

    def _gate(self, suffix: str, activation: Function) -> list[Entry]:
        """A cell on the input and the last output, under a name of its own."""
        names = (f"{self.output_name}__{suffix}", self.input_name, self.output_name)
        return RNNCell(self.input_size, self.hidden_size, *names, activation, self.arity)()

    def _at(self, suffix: str, time: Any) -> Any:
        return atom(f"{self.output_name}__{suffix}", [*terms(self.arity), time])

    def _state(self, time: Any) -> Any:
        return atom(self.output_name, [*terms(self.arity), time])


@dataclass(eq=False, repr=False)
class RNN(RecurrentModule):
    """h(T) = tanh(W·x(T) + U·h(T − 1)).

    >>> print(*RNN(2, 3, "h", "x", "h0")(), sep="\\n")
    h(X0, 0) :- h0(X0).
    h(X0, T) :- {3, 2} x(X0, T), {3, 3} h(X0, Z), @next(Z, T). [transformation=tanh]
    """

    input_size: int
    hidden_size: int
    output_name: str
    input_name: str
    hidden_0_name: str
    activation: Function = Transformation.TANH
    arity: int = 1

    def __call__(self) -> list[Entry]:
        names = (self.output_name, self.input_name, self.output_name)
        cell = RNNCell(self.input_size, self.hidden_size, *names, self.activation, self.arity)
        return [self._first(self.output_name, self.hidden_0_name), *cell()]


@dataclass(eq=False, repr=False)
class GRU(RecurrentModule):
    """Gates r and z, a candidate n; h(T) = (1 − z)·n + z·h(T − 1).

    >>> rules = GRU(2, 3, "h", "x", "h0")()
    >>> print(len(rules), "rules; the last:", rules[-1])
    8 rules; the last: h(X0, T) :- h__left(X0, T), h__right(X0, T).
    """

    input_size: int
    hidden_size: int
    output_name: str
    input_name: str
    hidden_0_name: str
    arity: int = 1
    next_name: str = NEXT

    def __post_init__(self) -> None:
        refuse_unread("next_name", self.next_name, NEXT)

    def __call__(self) -> list[Entry]:
        size, t = self.hidden_size, V.T
        product = [Combination.ELPRODUCT]
        old = self._state(V.Z)
        new = atom(self.input_name, [*terms(self.arity), t])[size, self.input_size]
        return [
            self._first(self.output_name, self.hidden_0_name),
            *self._gate("r", Transformation.SIGMOID),
            *self._gate("z", Transformation.SIGMOID),
            (self._at("n_reset", t) <= (self._at("r", t), old[size, size], STEP)) | product,
            (self._at("n", t) <= (new, self._at("n_reset", t))) | [Transformation.TANH],
            (self._at("left", t) <= (-self._at("z", t), self._at("n", t))) | product,
            (self._at("right", t) <= (self._at("z", t), old, STEP)) | product,
            self._state(t) <= (self._at("left", t), self._at("right", t)),
        ]


@dataclass(eq=False, repr=False)
class LSTM(RecurrentModule):
    """Gates i, f, o and a candidate n; c = f·c + i·n, h = o·tanh(c).

    >>> rules = LSTM(2, 3, "h", "x", "h0", "c0")()
    >>> print(len(rules), "rules; the last:", str(rules[-1]).partition(" [")[0])
    10 rules; the last: h(X0, T) :- h__o(X0, T), tanh(h__c(X0, T)).
    """

    input_size: int
    hidden_size: int
    output_name: str
    input_name: str
    hidden_0_name: str
    cell_state_0_name: str
    arity: int = 1

    def __call__(self) -> list[Entry]:
        t, product = V.T, [Combination.ELPRODUCT]
        sigmoid = Transformation.SIGMOID
        cell = f"{self.output_name}__c"
        return [
            self._first(self.output_name, self.hidden_0_name),
            *self._gate("i", sigmoid),
            *self._gate("f", sigmoid),
            *self._gate("o", sigmoid),
            *self._gate("n", Transformation.TANH),
            (self._at("left", t) <= (self._at("f", t), self._at("c", V.Z), STEP)) | product,
            (self._at("right", t) <= (self._at("i", t), self._at("n", t))) | product,
            self._at("c", t) <= (self._at("left", t), self._at("right", t)),
            self._first(cell, self.cell_state_0_name),
            (self._state(t) <= (self._at("o", t), Transformation.TANH(self._at("c", t)))) | product,
        ]
