"""Writes what the pages take from the package itself: the help of commands, all options, and a small cache at work.

python docs/generate.py
"""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stdout, suppress
from pathlib import Path

import numpy as np

from scarlet.arrays import Labels
from scarlet.cli.main import COMMANDS, main
from scarlet.cli.options import Option, help_text, options_of
from scarlet.config import Config
from scarlet.experiment.cache_simulation import SimulateConfig
from scarlet.experiment.costs import CostsConfig
from scarlet.methods.registry import METHODS
from scarlet.protocol.cache import ABSENT, CacheTable, Duration

SAMPLES, A_ROUND, ROUNDS, DURATION, CLASSES = 16, 6, 12, 3, 3


def steps() -> dict[str, object]:
    """What happens to each sample in each round, under both rules of expiry."""
    return {
        "samples": SAMPLES,
        "duration": DURATION,
        "rules": {"delete": played(Duration(DURATION, "delete")), "refresh": played(Duration(DURATION, "refresh"))},
    }


def played(policy: Duration) -> list[dict[str, object]]:
    """The rounds of one cache; the draws are those of every call."""
    rng = np.random.default_rng(4)
    cache = CacheTable.empty(SAMPLES, CLASSES)
    rounds = []
    for t in range(1, ROUNDS + 1):
        index = np.sort(rng.choice(SAMPLES, A_ROUND, replace=False)).astype(np.int64)
        request = policy.request(cache, index, t)
        expired = request[cache.stamp[request] != ABSENT]
        fresh = Labels(request, np.full((len(request), CLASSES), 1 / CLASSES, np.float32))
        policy.commit(cache, fresh, index, t)
        rounds.append(
            {
                "drawn": index.tolist(),
                "requested": request.tolist(),
                "expired": expired.tolist(),
                "stamps": [None if stamp == ABSENT else int(stamp) for stamp in cache.stamp],
            }
        )
    return rounds


def commands() -> str:
    """A page with the help of every command."""
    os.environ["COLUMNS"] = "100"
    lines = ["# Commands", "", "`scarlet COMMAND --help` prints what is here.", ""]
    for name, about in COMMANDS.items():
        said = io.StringIO()
        with redirect_stdout(said), suppress(SystemExit):
            main([name, "--help"])
        lines += [f"## scarlet {name}", "", about.partition(": scarlet")[0].capitalize() + ".", "", "```text"]
        lines += [said.getvalue().rstrip(), "```", ""]
    return "\n".join(lines)


def options() -> str:
    """A page with the fields of every configuration, from their own documentation."""
    lines = [
        "# Options",
        "",
        "What `scarlet.Config` and the configuration of each method hold. On the command line `cache_duration` is "
        "`--cache-duration`.",
        "",
    ]
    for config in (Config, *(entry.config for entry in METHODS.values()), CostsConfig, SimulateConfig):
        found = options_of(config)
        if found:
            lines += [f"## {config.__name__}", "", "| field | default | meaning |", "|---|---|---|"]
            lines += [_row(name, option) for name, option in found.items()]
            lines.append("")
    return "\n".join(lines)


def _row(name: str, option: Option) -> str:
    meaning = help_text(option.hint, None).replace("|", "\\|")
    return f"| `{name}` | {'' if option.default is None else f'`{option.default}`'} | {meaning} |"


def pages() -> dict[Path, str]:
    """The files, by path."""
    here = Path(__file__).parent
    steps_of_a_cache = f"const CACHE_STEPS = {json.dumps(steps(), separators=(',', ':'))};\n"
    return {
        here / "javascripts" / "cache-steps.js": steps_of_a_cache,
        here / "commands.md": commands(),
        here / "options.md": options(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
