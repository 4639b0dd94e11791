"""Settings of a template: optimiser, error function, initializer, default functions."""

from __future__ import annotations

import weakref
from enum import Enum
from typing import Any

from edgewise.errors import caller, safe_repr, suggest
from edgewise.neuralogic.core.constructs.function.enum import (
    Aggregation,
    Combination,
    Transformation,
)
from edgewise.neuralogic.core.constructs.function.function import NamedFunction
from edgewise.neuralogic.errors import BadSetting
from edgewise.neuralogic.nn.init import Glorot, Initializer
from edgewise.neuralogic.nn.loss import MSE, ErrorFunction
from edgewise.neuralogic.nn.optim import Adam, Optimizer


class GroundingMethod(Enum):
    """PyNeuraLogic's grounders; there is one here, and both names mean it.

    >>> Settings(grounder=GroundingMethod.BUP).grounder
    <GroundingMethod.BUP: 'bup'>
    """

    BUP = "bup"
    GRINGO = "gringo"


TYPES = {"optimizer": Optimizer, "error_function": ErrorFunction, "initializer": Initializer}
FUNCTIONS = {
    "rule_transformation": Transformation.IDENTITY,
    "relation_transformation": Transformation.IDENTITY,
    "rule_combination": Combination.SUM,
    "relation_combination": Combination.SUM,
    "rule_aggregation": Aggregation.AVG,
}
# switches of the JVM's network builder: they change no value there, and nothing here
WITHOUT_EFFECT = {
    "iso_value_compression": True,
    "chain_pruning": True,
    "prune_only_identities": False,
    "grounder": GroundingMethod.BUP,
}
NUMBERS = {"epochs": None, "clip_grad_norm": None, "clip_grad_value": None}


class SettingsProxy:
    """The settings that a template was built with; follows later changes of `Settings`.

    >>> Settings().create_proxy().initializer_uniform_scale
    2.0
    """

    def __init__(self, params: dict[str, Any]) -> None:
        self.__dict__.update(params)

    @property
    def initializer_uniform_scale(self) -> float:
        return self.__dict__["initializer"].scale

    @property
    def initializer_const(self) -> float:
        return self.__dict__["initializer"].value


class Settings:
    """Options by keyword; `settings.optimizer = SGD(0.1)` changes one.

    >>> from edgewise.neuralogic.nn.optim import Adam
    >>> settings = Settings(optimizer=Adam(0.01), epochs=20)
    >>> settings.epochs
    20
    """

    def __init__(self, **options: Any) -> None:
        defaults = {"optimizer": Adam(), "error_function": MSE(), "initializer": Glorot()}
        self.params: dict[str, Any] = defaults | FUNCTIONS | WITHOUT_EFFECT | NUMBERS
        self._proxies: weakref.WeakSet[SettingsProxy] = weakref.WeakSet()
        for name, value in (self.params | options).items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("params", "_proxies"):
            super().__setattr__(name, value)
            return
        if name not in self.params:
            raise BadSetting(
                f"there is no setting `{name}`", caller(), suggest(name, list(self.params))
            )
        self.params[name] = self.__dict__[name] = _checked(name, value)
        for proxy in self._proxies:
            proxy.__dict__[name] = value

    def create_proxy(self) -> SettingsProxy:
        proxy = self.create_disconnected_proxy()
        self._proxies.add(proxy)
        return proxy

    def create_disconnected_proxy(self) -> SettingsProxy:
        return SettingsProxy(dict(self.params))


def _checked(name: str, value: Any) -> Any:
    if name in TYPES and not isinstance(value, TYPES[name]):
        shown = {"optimizer": "SGD(0.1)", "error_function": "MSE()", "initializer": "Uniform()"}
        raise BadSetting(
            f"`{name}` is not {safe_repr(value)}",
            caller(),
            f"write `Settings({name}={shown[name]})`",
        )
    if name in FUNCTIONS:
        kind = FUNCTIONS[name].kind
        if not isinstance(value, NamedFunction) or value.kind != kind:
            raise BadSetting(
                f"`{name}` is a {kind}, got {safe_repr(value)}",
                caller(),
                f"write `Settings({name}=F.{FUNCTIONS[name].ours})`",
            )
    if name in NUMBERS and value is not None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not value > 0:
            raise BadSetting(
                f"`{name}` is a positive number, got {safe_repr(value)}",
                caller(),
                "or leave it out",
            )
    return value


Grounder = GroundingMethod
