"""What stands in more than one file of the project is the same in all of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]


def found(pattern: str, file: str) -> list[str]:
    return re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert found(r"^version: (.+)$", "CITATION.cff") == [version]
    assert found(r"^## (\S+) \(.+\)$", "CHANGELOG.md")[0] == version


def test_ruff_before_a_commit_is_the_ruff_of_make_lint() -> None:
    (pinned,) = found(r"^(ruff==.+)$", "constraints.txt")
    assert set(found(r"\[(ruff==.+)\]", ".pre-commit-config.yaml")) == {pinned}


def test_the_paper_is_cited_alike() -> None:
    for field in ("title", "journal", "year", "doi"):
        assert found(rf"^  {field} += \{{(.+)\}}", "README.md") == found(rf"^  {field}: (.+)$", "CITATION.cff") != []
    (authors,) = found(r"^  author += \{(.+)\}", "README.md")
    family, given = (found(rf"{name}-names: (.+)$", "CITATION.cff") for name in ("family", "given"))
    assert authors.split(" and ") == [f"{last}, {first}" for last, first in zip(family, given, strict=True)]


def anchors(page: Path) -> Iterator[str]:
    """What links into a page may name: its headings, as they are shown in an address."""
    for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        yield re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/releasing.md", "SECURITY.md"])
def test_every_file_that_a_page_for_contributors_names_is_there(page: str) -> None:
    named = found(r"`((?:src|tests|docs|benchmarks|\.ci)/[\w./-]+)`", page)
    assert [name for name in named if not (ROOT / name).exists()] == []
