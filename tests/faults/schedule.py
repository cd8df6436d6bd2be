"""A schedule: a federation and its faults, both drawn from one seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.server import Participation
from scarlet.rng import stream
from tests.faults.judge import Violation
from tests.faults.methods import METHODS
from tests.faults.nodes import FEATURES, World
from tests.faults.play import Faults, Play

Outcome = Counter[str] | str  # how often each fault and event occurred; or what went wrong

_ROLE = "chaos"  # in the names of the random streams; another word would change every schedule
_QUIET_ROUNDS = 2  # without faults, at the end: all must be well again


def play_schedule(seed: int, codec_name: str = "reference", method: str | None = None) -> Counter[str]:
    """Play one schedule; Violation if an invariant breaks. Returns how often each fault and event occurred.

    `method` is one of METHODS; None draws one.
    """
    world, rounds, faults = drawn(seed, codec_name, method)
    played = Play(world, faults, stream(seed, _ROLE, purpose="faults"))
    played.rounds(rounds)
    if faults.only_crashes:
        uninterrupted = Play(world, Faults(), stream(seed, _ROLE, purpose="calm"))
        uninterrupted.rounds(rounds)
        if not played.ended_as(uninterrupted):
            raise Violation("a federation whose processes crashed differs from the one that was never interrupted")
    played.stop_faults()
    played.rounds(rounds + _QUIET_ROUNDS)
    return played.events


def drawn(seed: int, codec_name: str = "reference", method: str | None = None) -> tuple[World, int, Faults]:
    """The federation of a schedule, its rounds under faults, and the faults."""
    rng = stream(seed, _ROLE, purpose="schedule")
    world = _world(seed, codec_name, rng, method)
    rounds = int(rng.integers(3, 9))
    if rng.random() < 0.25:
        faults = Faults(client_crash=0.3, server_crash=0.3)
    else:
        likely = rng.random(8) * (rng.random(8) < 0.6) * np.array([0.4, 0.3, 0.3, 0.3, 0.3, 0.3, 0.15, 0.1])
        unlikely = stream(seed, _ROLE, purpose="set back")
        faults = replace(Faults(*likely.tolist()), set_back=0.3 if unlikely.random() < 0.2 else 0.0)
    return world, rounds, faults


def outcome(seed: int, codec_name: str) -> Outcome:
    """What happened in a schedule, or what went wrong: a violation, or an error that nobody foresaw."""
    try:
        return play_schedule(seed, codec_name)
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _world(seed: int, codec_name: str, rng: np.random.Generator, method: str | None) -> World:
    clients, public_size = int(rng.integers(1, 6)), int(rng.integers(4, 25))
    public_per_round, classes = int(rng.integers(1, public_size + 1)), int(rng.integers(2, 5))
    participation = Participation(float(rng.choice([1.0, 1.0, 0.5])))
    agreement = Agreement(clients, public_size, public_per_round, classes, seed, public=rng.bytes(8).hex())
    public = rng.normal(size=(public_size, FEATURES)).astype(np.float32)
    # SCARLET is drawn as often as all others together.
    name = method or (list(METHODS)[rng.integers(len(METHODS))] if rng.random() < 0.5 else "scarlet")
    built = METHODS[name](rng, participation.asked(clients))
    if built.uplink_bits is None:
        up, down = (bits if bits else None for bits in rng.choice([0, 4, 8, 16, 32], 2).tolist())
        built = replace(built, uplink_bits=up, downlink_bits=down)
    return World(built, agreement, participation, codec(codec_name, built, agreement), public, abstain=seed % 3)
