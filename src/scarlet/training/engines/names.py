"""The names of the engines, apart from their code, so that a configuration can be checked without loading torch."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["auto", "contiguous", "channels-last", "compiled", "batched"]
