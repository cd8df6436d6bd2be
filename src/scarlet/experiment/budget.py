"""Which cache duration and how many public samples a round keep SCARLET within a budget of traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from scarlet.config import build
from scarlet.errors import ConfigError
from scarlet.experiment.costs import MB, CostsConfig, method_of, play
from scarlet.methods.registry import entry
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.server import Participation

DURATIONS = (0, 10, 25, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A setting that stays within the budget."""

    cache_duration: int
    public_per_round: int
    total_mb: float
    recommended: bool = False


def proposals(config: CostsConfig, target_mb: float, durations: Sequence[int] = DURATIONS) -> list[Proposal]:
    """For each cache duration D, as many of the wanted samples a round (|P^t|) as the budget allows.

    The D of the config is tried beside `durations`. The smallest D that leaves |P^t| as wanted is recommended, because
    its labels are the freshest; if there is none, the D that leaves most samples.
    """
    if not (math.isfinite(target_mb) and target_mb > 0):
        raise ConfigError(f"target_mb must be a number above 0, got {target_mb}; it is the traffic of the whole run")
    durations = sorted(each for each in {*durations, config.cache_duration} if each < config.rounds) or [0]
    tried = (_fitting(replace(config, cache_duration=each), target_mb) for each in durations)
    found = [each for each in tried if each is not None]
    if not found:
        least = min(_total(replace(config, cache_duration=each, public_per_round=1)) for each in durations)
        raise ConfigError(
            f"target_mb must be at least {_rounded_up(least):g}, which one sample a round costs, got {target_mb:g}; "
            "use fewer clients or rounds"
        )
    best = max(found, key=lambda each: (each.public_per_round, -each.cache_duration))
    return [replace(each, recommended=each is best) for each in found]


def _rounded_up(megabytes: float) -> float:
    """To three digits, so that whoever asks for as much gets a proposal."""
    unit = 10.0 ** (math.floor(math.log10(megabytes)) - 2)
    return math.ceil(megabytes / unit) * unit


def _fitting(config: CostsConfig, target_mb: float) -> Proposal | None:
    """The most samples a round that fit, found from below: traffic is nearly in proportion to them."""
    low, high = 0, config.public_per_round + 1  # low fits, high does not
    size, total = config.public_per_round, _total(config)
    best = 0.0
    while True:
        if total <= target_mb:
            low, best = size, total
        else:
            high = size
        # Two per cent below the budget is near enough: a play of all rounds takes seconds.
        if high - low <= 1 or low == config.public_per_round or best >= 0.98 * target_mb:
            break
        guess = int(size * target_mb / total)
        size = guess if low < guess < high else (low + high) // 2
        total = _total(replace(config, public_per_round=size))
    return Proposal(config.cache_duration, low, best) if low else None


def _total(config: CostsConfig) -> float:
    """Megabytes of the whole run."""
    agreement: Agreement = build(Agreement, asdict(config))
    method = method_of(entry("scarlet"), config)
    return play(method, agreement, config.rounds, config.codec, Participation(config.participation)).total / MB
