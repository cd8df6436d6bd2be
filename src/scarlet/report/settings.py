"""The options of a run as a file that `--config` reads, and the versions that it was made with."""

from __future__ import annotations

import json
from collections.abc import Mapping

from scarlet.report.variants import Variant


def settings(variant: Variant) -> str:
    """TOML with the options of the variant's first run; versions and other seeds are comments."""
    run = variant.runs[0]
    versions = run.summary.get("versions")
    lines = [f"# {variant.name}"]
    if isinstance(versions, Mapping):
        lines.append("# " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    if len(variant.runs) > 1:
        lines.append(f"# seeds {', '.join(str(each.seed) for each in variant.runs)}")
    lines += [f"{_key(option)} = {_toml(value)}" for option, value in run.config.items() if value is not None]
    return "".join(" ".join(line.splitlines()) + "\n" for line in lines)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: object) -> str:
    bare = str(name).replace("_", "").replace("-", "")
    return str(name) if bare.isascii() and bare.isalnum() else json.dumps(str(name), ensure_ascii=False)
