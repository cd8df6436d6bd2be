"""The command line: a thin layer over the Python API."""

from scarlet.cli.main import main

__all__ = ["main"]
