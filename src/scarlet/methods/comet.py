"""COMET: clustered co-distillation (Cho et al., IEEE JSTSP 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from typing_extensions import Doc

from scarlet.errors import ConfigError
from scarlet.methods.caching import Caching
from scarlet.methods.parts.clusters import clustered, nearest
from scarlet.protocol.downlink.personal import Personal
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method

Assign = Literal["client", "server"]


@dataclass(frozen=True, slots=True)
class CometConfig(Caching):
    """The options of COMET."""

    clusters: Annotated[
        int, Doc("C, teachers per image: k-means centres of the clients' soft-labels; 1: their mean")
    ] = 2
    distil_weight: Annotated[float, Doc("lambda, weight of the distillation loss of the clients")] = 1.0
    assign: Annotated[
        Assign,
        Doc("who chooses a client's teacher: the client, out of all C, or the server, which sends only that one"),
    ] = "client"
    starts: Annotated[int, Doc("random starts of k-means; the best clustering is used")] = 4

    def __post_init__(self) -> None:
        comet(self)


def comet(config: CometConfig) -> Method:
    """Each sample has C teachers, k-means centres of the clients' labels, and a client learns from the nearest.

    The server's model, which the original does not have, learns the plain mean. clusters=1 is plain averaging.
    """
    if config.assign == "server" and config.cache_duration:
        raise ConfigError(
            "assign must be client where there is a cache, got server; a cache holds the teachers that all share: "
            "use assign client, or cache_duration 0"
        )
    shared = Shared(config.policy, teachers=config.clusters, choose=nearest)
    return Method(
        aggregate=clustered(config.clusters, config.starts),
        downlink=Personal(config.clusters) if config.assign == "server" else shared,
        distil_weight=config.distil_weight,
    )
