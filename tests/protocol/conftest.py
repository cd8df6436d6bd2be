from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from scarlet.training.native_library import compiled


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in a run: on networks this small, threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Library(bytes):
    """What was compiled, too long to be shown."""

    def __repr__(self) -> str:
        return f"a library of {len(self)} bytes"


@pytest.fixture(scope="module")
def binary() -> bytes:
    made = compiled()
    if made is None:
        pytest.skip("NO C COMPILER: native models are not tested")
    return Library(made)


@pytest.fixture(scope="module", params=["AVX512", "AVX2"])
def either(request: pytest.FixtureRequest, binary: bytes) -> bytes:
    """The library for this processor, and that for one with narrower vectors."""
    if request.param == torch.backends.cpu.get_cpu_capability():
        return binary
    if request.param == "AVX512":
        pytest.skip("NO AVX512: its code is not tested")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: request.param)
        made = compiled.__wrapped__()
    assert made is not None and made != binary
    return Library(made)
