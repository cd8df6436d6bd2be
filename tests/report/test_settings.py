from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

from scarlet.experiment.config_json import unflatten
from scarlet.report.settings import settings
from scarlet.report.variants import group
from tests.report.runs import run

OLD = json.loads((Path(__file__).parent / "old_run" / "config.json").read_text())


def test_the_text_is_toml_with_every_option_that_has_a_value_and_gives_the_same_run() -> None:
    config = {**OLD, "engine": "auto", "model_shares": [0.5, 0.5], "model": "cnn,mlp"}
    (variant,) = group([dataclasses.replace(run("scarlet", 0, [0.5]), config=config)])
    table = tomllib.loads(settings(variant))
    assert table == {option: value for option, value in config.items() if value is not None}
    assert unflatten(table, "the copy") == unflatten(config, "the run")


def test_versions_and_seeds_are_comments() -> None:
    versions = {"python": "3.11.7", "torch": "2.13.0"}
    runs = [dataclasses.replace(run("scarlet", seed, [0.5]), summary={"versions": versions}) for seed in (0, 3)]
    assert settings(*group(runs)).splitlines()[:3] == ["# SCARLET", "# python 3.11.7, torch 2.13.0", "# seeds 0, 3"]


def test_any_text_is_quoted() -> None:
    odd = {"a b": 'say "x"\n\\', "given": {"public": "an array", "x.y": [1, True]}}
    (variant,) = group([run("line\nbreak", 0, [0.5], **odd)])
    table = tomllib.loads(settings(variant))
    assert {name: table[name] for name in odd} == odd and table["method"] == "line\nbreak"
