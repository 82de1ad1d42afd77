"""The page: one document that contains the front end, so that a browser needs one request for it.

The modules of the front end are joined to one script. They are written for this: an import is one
line, and no two modules define the same name.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: The folder of the front end.
STATIC = files("torchx_dashboard") / "static"
#: The modules of the page, each after those that it needs at once.
MODULES = (
    *("dom", "ansi", "stream", "net", "table", "charts", "logview", "actions", "jobs", "job"),
    *("runs", "sweeps", "cluster", "main"),
)
#: The modules of the SharedWorker, which all pages of a browser use.
WORKER_MODULES = ("stream", "shared")


@dataclass(frozen=True)
class FrontEnd:
    """The texts of the front end.

    Args:
        style: The style sheet.
        scripts: The scripts, in the order in which the page runs them.
        search: The script of the worker that searches logs.
        worker: The script of the SharedWorker.
    """

    style: str
    scripts: tuple[str, ...]
    search: str
    worker: str

    @property
    def policy(self) -> str:
        """A Content Security Policy that allows these scripts and styles only."""
        return (
            f"default-src 'none'; script-src {' '.join(map(_source, self.scripts))};"
            f" style-src {_source(self.style)}; img-src blob: data:;"
            " connect-src 'self'; worker-src 'self' blob:; frame-ancestors 'none';"
            " base-uri 'none'; form-action 'none'"
        )


@cache
def front_end() -> FrontEnd:
    """Return the texts of the front end."""
    return FrontEnd(
        style=_text("vendor/uPlot.min.css") + _text("app.css"),
        scripts=(_text("vendor/uPlot.iife.min.js"), _joined(MODULES)),
        search=_text("search.js"),
        worker=_joined(WORKER_MODULES),
    )


def document() -> str:
    """Return the page."""
    parts = front_end()
    body = [f'<script type="text/plain" id="search-worker">{parts.search}</script>']
    body += [f"<script>{text}</script>" for text in parts.scripts]
    page = _text("index.html").replace("<!-- head -->", f"<style>{parts.style}</style>")
    return page.replace("<!-- body -->", "\n".join(body))


def _joined(names: tuple[str, ...]) -> str:
    """Return modules as one script."""
    joined = "\n".join(re.sub(r"^import .*\n", "", _text(f"{n}.js"), flags=re.M) for n in names)
    joined = re.sub(r"^export ", "", joined, flags=re.M)
    return f'(() => {{\n"use strict";\n{joined}}})();\n'


def _text(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _source(text: str) -> str:
    """Return the source of a Content Security Policy that allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
