"""The methods that the simulator plays, each with options drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scarlet.arrays import Inputs, Labels
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.individual import IndividualConfig, individual
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.methods.selective_fd import SelectiveFdConfig, selective_fd
from scarlet.protocol.cache import OnExpiry
from scarlet.protocol.method import Filter, Method, Prepared

Draw = Callable[[np.random.Generator, int], Method]  # (generator, clients that a round asks)


@dataclass(frozen=True, slots=True)
class RandomShare(Filter):
    """Replaces the density ratio of Selective-FD: a client answers a random share of the samples, at times none."""

    share: float

    def prepare(self, private: Inputs, public: Inputs, rng: np.random.Generator) -> Prepared:
        return {"accepted": rng.random(len(public)) < self.share * (rng.random() < 0.8)}

    def __call__(self, labels: Labels, prepared: Prepared) -> Labels:
        accepted = prepared["accepted"][labels.index].astype(np.bool_)
        return Labels(labels.index[accepted], labels.value[accepted])


def _scarlet(rng: np.random.Generator, asked: int) -> Method:
    return scarlet(ScarletConfig(beta=1.5, cache_duration=int(rng.integers(0, 6)), on_expiry=_expiry(rng)))


def _cfd(rng: np.random.Generator, asked: int) -> Method:
    return cfd(
        CfdConfig(
            cache_duration=_duration(rng),
            on_expiry=_expiry(rng),
            uplink_bits=int(rng.choice([1, 1, 2, 5, 32])),
            downlink_bits=int(rng.choice([1, 3, 12, 32])),
            delta=bool(rng.random() < 0.6),
            restart=bool(rng.random() < 0.3),
            subset="fixed" if rng.random() < 0.3 else "drawn",
        )
    )


def _comet(rng: np.random.Generator, asked: int) -> Method:
    clusters = int(rng.integers(1, 1 + min(3, asked)))
    if rng.random() < 0.3:
        return comet(CometConfig(clusters=clusters, assign="server"))
    return comet(CometConfig(clusters=clusters, cache_duration=_duration(rng), on_expiry=_expiry(rng)))


def _selective_fd(rng: np.random.Generator, asked: int) -> Method:
    tau = float(rng.choice([2.0, 1.0, 0.3]))
    method = selective_fd(SelectiveFdConfig(cache_duration=_duration(rng), on_expiry=_expiry(rng), tau_server=tau))
    return replace(method, filter=RandomShare(float(rng.random())))


def _duration(rng: np.random.Generator) -> int:
    """Half of them without a cache."""
    return int(rng.integers(1, 6) * (rng.random() < 0.5))


def _expiry(rng: np.random.Generator) -> OnExpiry:
    return "delete" if rng.random() < 0.5 else "refresh"


METHODS: dict[str, Draw] = {
    "scarlet": _scarlet,
    "dsfl": lambda rng, asked: dsfl(DsflConfig()),
    "cfd": _cfd,
    "comet": _comet,
    "selective-fd": _selective_fd,
    "fedavg": lambda rng, asked: fedavg(FedavgConfig()),
    "individual": lambda rng, asked: individual(IndividualConfig()),
}
