"""The page: one document that contains the front end, with or without data.

A browser needs one request for it, and a page without a server (``torchx dashboard --export``) is
the same document. The modules of the front end are joined to one script. They are written for
this: an import is one line, and no two modules define the same name.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from torchx_dashboard.stream import to_json

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

    def policy(self, connections: str) -> str:
        """Return a Content Security Policy that allows these scripts and styles only.

        Args:
            connections: The sources to which the page may connect, with their directives.
        """
        return (
            f"default-src 'none'; script-src {' '.join(map(_source, self.scripts))};"
            f" style-src {_source(self.style)}; img-src blob: data:; {connections};"
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


def document(data: dict[str, Any] | None = None) -> str:
    """Return the page.

    Args:
        data: The server's answers, for a page without a server; see ``net.js``. None makes a page
            that requests its data.
    """
    parts = front_end()
    head, body = [f"<style>{parts.style}</style>"], []
    if data is not None:
        policy = parts.policy("worker-src blob:")
        head.insert(0, f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
        # In JSON, "<" occurs in texts only, so the data cannot end the element.
        embedded = to_json(data).decode().replace("<", "\\u003c")
        body.append(f'<script type="application/json" id="export">{embedded}</script>')
    body.append(f'<script type="text/plain" id="search-worker">{parts.search}</script>')
    body += [f"<script>{text}</script>" for text in parts.scripts]
    page = _text("index.html")
    return page.replace("<!-- head -->", "\n".join(head)).replace("<!-- body -->", "\n".join(body))


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
