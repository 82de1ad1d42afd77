"""An extension of griffe that converts docstrings from Sphinx's notation to Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from sphinx_text import as_markdown


class SphinxDocstrings(griffe.Extension):
    """Converts the docstring of each object when griffe loads the object."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Convert the docstring of an object to Markdown."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
