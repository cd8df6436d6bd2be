"""The rules of a site: what it takes part in, and what may leave it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from scarlet.errors import ConfigError, unknown
from scarlet.experiment.config_json import from_file


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy.toml of the site; what it does not say is allowed."""

    experiments: tuple[str, ...] | None = None  # digests of the agreements that the site takes part in; None: of any
    min_samples: int = 1  # training samples, below which the site does not take part
    metrics: bool = True  # whether accuracy and losses leave the site
    max_label_bits: int = 32  # bits of each entry of a soft-label that the site sends

    @staticmethod
    def read(path: Path | None) -> Policy:
        """The rules in a file; None: there are none."""
        if path is None:
            return Policy()
        try:
            table = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"policy cannot be read: {path}: {error.strerror}; check the path") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"policy {path} is not well formed: {error}") from None
        return Policy(**_values(table, path))

    def objection(self, *, experiment: str, samples: int, label_bits: int) -> str | None:
        """Why the site does not take part; None if it does."""
        if self.experiments is not None and experiment not in self.experiments:
            return f"experiment {experiment} is not among those that policy.toml allows"
        if samples < self.min_samples:
            return f"the site has {samples} training samples, and policy.toml wants {self.min_samples} or more"
        if label_bits > self.max_label_bits:
            return f"soft-labels have {label_bits} bits an entry, and policy.toml allows {self.max_label_bits}"
        return None


def _values(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    hints = {"min_samples": int, "metrics": bool, "max_label_bits": int}
    values: dict[str, Any] = {}
    for name, value in table.items():
        field = name.replace("-", "_")
        if field not in {each.name for each in fields(Policy)}:
            raise unknown(f"rule in {path}", name, [each.name for each in fields(Policy)])
        if field == "experiments":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ConfigError(f"experiments in {path} must be a list of digests, got {value!r}")
            values[field] = tuple(value)
        else:
            values[field] = from_file(f"{name} in {path}", hints[field], value)
    return values
