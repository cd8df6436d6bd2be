"""Federated distillation with synchronised soft-label caches (SCARLET), and the methods it is compared with.

import scarlet

result = scarlet.run(scarlet.ScarletConfig(beta=1.5), scarlet.Config(rounds=20))
print(result.summary["server_accuracy"])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scarlet.config import Config as Config
    from scarlet.data.partition import share_out as share_out
    from scarlet.data.sites import Augment as Augment
    from scarlet.data.sites import Site as Site
    from scarlet.errors import ScarletError as ScarletError
    from scarlet.experiment.cache_simulation import SimulateConfig as SimulateConfig
    from scarlet.experiment.cache_simulation import simulate_cache as simulate_cache
    from scarlet.experiment.comparison import compare as compare
    from scarlet.experiment.costs import CostsConfig as CostsConfig
    from scarlet.experiment.costs import costs as costs
    from scarlet.experiment.result import Result as Result
    from scarlet.experiment.run import run as run
    from scarlet.experiment.sweep import sweep as sweep
    from scarlet.methods.centralized import CentralizedConfig as CentralizedConfig
    from scarlet.methods.cfd import CfdConfig as CfdConfig
    from scarlet.methods.comet import CometConfig as CometConfig
    from scarlet.methods.dsfl import DsflConfig as DsflConfig
    from scarlet.methods.fedavg import FedavgConfig as FedavgConfig
    from scarlet.methods.individual import IndividualConfig as IndividualConfig
    from scarlet.methods.registry import register as register
    from scarlet.methods.scarlet import ScarletConfig as ScarletConfig
    from scarlet.methods.selective_fd import SelectiveFdConfig as SelectiveFdConfig
    from scarlet.protocol.method import Method as Method

# Loaded on first use, so that `import scarlet` and `scarlet --help` do not wait for torch.
_HOMES = {
    "Augment": "scarlet.data.sites",
    "CentralizedConfig": "scarlet.methods.centralized",
    "CfdConfig": "scarlet.methods.cfd",
    "CometConfig": "scarlet.methods.comet",
    "Config": "scarlet.config",
    "CostsConfig": "scarlet.experiment.costs",
    "DsflConfig": "scarlet.methods.dsfl",
    "FedavgConfig": "scarlet.methods.fedavg",
    "IndividualConfig": "scarlet.methods.individual",
    "Method": "scarlet.protocol.method",
    "Result": "scarlet.experiment.result",
    "ScarletConfig": "scarlet.methods.scarlet",
    "ScarletError": "scarlet.errors",
    "SelectiveFdConfig": "scarlet.methods.selective_fd",
    "Site": "scarlet.data.sites",
    "SimulateConfig": "scarlet.experiment.cache_simulation",
    "compare": "scarlet.experiment.comparison",
    "costs": "scarlet.experiment.costs",
    "register": "scarlet.methods.registry",
    "run": "scarlet.experiment.run",
    "share_out": "scarlet.data.partition",
    "sweep": "scarlet.experiment.sweep",
    "simulate_cache": "scarlet.experiment.cache_simulation",
}

_GONE = {
    "Data": "give run(..., sites=..., public=...): scarlet.share_out makes sites from a dataset of yours",
    "PrivateSet": "give arrays to scarlet.share_out, or to a scarlet.Site for each client",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name in _GONE:
        raise AttributeError(f"scarlet.{name} is gone; {_GONE[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'scarlet' has no attribute {name!r}")
    value: object = globals().setdefault(name, getattr(import_module(_HOMES[name]), name))
    return value


def __dir__() -> list[str]:
    return __all__
