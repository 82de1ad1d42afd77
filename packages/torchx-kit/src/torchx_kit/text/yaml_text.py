"""Requests as YAML text, for people to read."""

from __future__ import annotations

from typing import Any


def yaml_text(data: Any, *, sort_keys: bool = True, width: int = 100) -> str:
    """Return plain data as YAML, without aliases, and with multi-line texts as blocks.

    Texts are styled by :func:`torchx_specs.formats.documents.represent_text`. If PyYAML includes
    libyaml, libyaml writes the text, because this is faster for large requests. The caller's
    distribution must depend on PyYAML.

    Args:
        data: Dictionaries, lists and scalars.
        sort_keys: Whether the keys of dictionaries are sorted.
        width: The longest line, in characters.
    """
    import yaml

    from torchx_specs.formats.documents import dumper_class

    dumper = dumper_class(is_fast=True)
    text: str = yaml.dump(data, Dumper=dumper, allow_unicode=True, sort_keys=sort_keys, width=width)
    return text
