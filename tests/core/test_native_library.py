from __future__ import annotations

import os
import platform
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from scarlet.core import native_library
from scarlet.core.native_library import compiled
from tests.core.native_models import (
    images,
    quick,
    same,
    small,
    trained,
    watched,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where what is compiled is kept: nothing yet, and nothing is remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled.cache_clear()
    yield tmp_path / "cache" / "scarlet"
    compiled.cache_clear()


Compiler = Callable[[str], None]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """What `cc` is from now on."""

    def put(script: str) -> None:
        file = tmp_path / "bin" / "cc"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", str(file.parent), prepend=os.pathsep)

    return put


@pytest.fixture
def runs(tmp_path: Path, binary: bytes, compiler: Compiler) -> Callable[[], int]:
    """How often a compiler was run, which takes no time."""
    log, made = tmp_path / "log", tmp_path / "made.so"
    made.write_bytes(binary)
    log.touch()
    compiler(
        f'[ "$1" = --version ] && exit; echo run >>"{log}"; while [ "$1" != -o ]; do shift; done; cp "{made}" "$2"'
    )
    return lambda: len(log.read_text().splitlines())


def test_without_a_compiler_there_is_no_library(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert compiled() is None and not kept.exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="NO C COMPILER: native models are not tested")
@pytest.mark.parametrize("capability", native_library._FLAGS)
def test_a_compiler_has_nothing_to_say_about_the_source(capability: str) -> None:
    options = "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-fsyntax-only", *native_library._FLAGS[capability]
    if platform.machine() == "x86_64":
        said = subprocess.run(["cc", *options, native_library._SOURCE], capture_output=True, text=True, check=False)
        assert said.returncode == 0 and said.stderr == ""


def test_for_another_processor_there_is_no_library(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert compiled() is None and not kept.exists()


@pytest.mark.parametrize(
    "script", ["exit 1", "exit 0", '[ "$1" = --version ] || { while [ "$1" != -o ]; do shift; done; echo no >"$2"; }']
)
def test_of_a_compiler_that_fails_there_is_no_library(kept: Path, compiler: Compiler, script: str) -> None:
    compiler(script)
    assert compiled() is None and not kept.exists()


def test_a_library_is_compiled_kept_and_found_again(
    binary: bytes, kept: Path, compiler: Compiler, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    real = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    compiler(f'[ "$1" = --version ] || echo run >>"{log}"; exec {real} "$@"')
    made = compiled()
    assert made is not None and compiled() is made
    (file,) = kept.iterdir()
    compiled.cache_clear()
    assert compiled() == made and log.read_text() == "run\n"
    assert list(kept.iterdir()) == [file]
    with watched() as asked:
        found = trained(quick(small(), made), images(5, 3, 9, 9))
    assert asked == ["train", "look"] and same(found, trained(quick(small(), binary), images(5, 3, 9, 9)))


FIND = "from scarlet.core.native_library import compiled; assert compiled()"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: b"no library" * 1000,
        lambda content: content[: len(content) // 2],
        lambda content: content[:4096] + bytes(len(content) - 4096),
    ],
    ids=["empty", "something else", "cut off", "zeros"],
)
def test_a_kept_library_that_was_spoilt_is_replaced(
    kept: Path, runs: Callable[[], int], spoil: Callable[[bytes], bytes]
) -> None:
    assert compiled() and runs() == 1
    (file,) = kept.iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    # In another process, as it might end this one.
    ended = subprocess.run([sys.executable, "-c", FIND], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"it ended by {ended.returncode}: {ended.stderr}"
    assert runs() == 2 and list(kept.iterdir()) == [file]
    compiled.cache_clear()
    assert compiled() and runs() == 2


def a_file(cache: Path) -> None:
    cache.write_text("")


def a_directory_that_nobody_may_write_to(cache: Path) -> None:
    cache.mkdir(mode=0o500)


def a_directory_that_nobody_may_enter(cache: Path) -> None:
    cache.mkdir(mode=0o000)


@pytest.mark.parametrize("make", [a_file, a_directory_that_nobody_may_write_to, a_directory_that_nobody_may_enter])
def test_where_nothing_can_be_kept_the_library_is_compiled_each_time(
    kept: Path, runs: Callable[[], int], binary: bytes, make: Callable[[Path], None]
) -> None:
    make(kept.parent)
    assert compiled() == binary
    compiled.cache_clear()
    assert compiled() == binary
    if os.geteuid() or make is a_file:  # root may do all
        assert runs() == 2 and not kept.exists()
    kept.parent.chmod(0o700)


def test_something_else_in_the_place_of_the_kept_library_is_left_there(
    kept: Path, runs: Callable[[], int], binary: bytes
) -> None:
    assert compiled()
    (file,) = kept.iterdir()
    file.unlink()
    file.mkdir()
    compiled.cache_clear()
    assert compiled() == binary and runs() == 2
    assert list(kept.iterdir()) == [file] and file.is_dir()


def test_an_empty_name_of_the_cache_is_none(
    kept: Path, runs: Callable[[], int], binary: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert compiled() == binary and runs() == 1
    assert list(here.iterdir()) == [] and list((tmp_path / "home" / ".cache" / "scarlet").iterdir())


def test_somebody_without_a_home_has_a_library_too(
    kept: Path, runs: Callable[[], int], binary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.chdir(kept.parent.parent)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    before = set(Path.cwd().iterdir())
    assert compiled() == binary and runs() == 1
    assert set(Path.cwd().iterdir()) == before, "a directory called ~ is nobody's home"
