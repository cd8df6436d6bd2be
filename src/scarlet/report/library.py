"""plotly.js: within a page, or in one file that the pages of a sweep share; and the policy of a page."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256

LIBRARY = "plotly.min.js"  # the file, beside the index of a sweep


@cache
def source() -> str:
    """The library itself, 5 MB."""
    from plotly.offline import get_plotlyjs  # slow to load

    return str(get_plotlyjs())


def script(link: str | None) -> str:
    """The element that loads the library: from the page itself, or from a file."""
    return f"<script>{source()}</script>" if link is None else f'<script src="{link}"></script>'


def policy(own: str, link: str | None) -> str:
    """The browser itself refuses whatever is not in the page: of scripts, all but the library and the page's own.

    Where the library is a file, 'self' admits it: that is any file of this computer, or of the site that has the page.
    """
    library = _digest(source()) if link is None else "'self'"
    return (
        f"default-src 'none'; script-src {library} {_digest(own)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@cache
def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
