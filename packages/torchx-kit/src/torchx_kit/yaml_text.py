"""Requests as YAML text, for people to read."""

from __future__ import annotations

from typing import Any


def yaml_text(data: Any, *, sort_keys: bool = True, width: int = 100) -> str:
    """Return plain data as YAML, without aliases, and with multi-line texts as blocks.

    Needs PyYAML, which the caller's distribution declares.

    Args:
        data: Dictionaries, lists and scalars.
        sort_keys: Whether the keys of dictionaries are sorted.
        width: The longest line, in characters.
    """
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    text: str = yaml.dump(data, Dumper=Dumper, allow_unicode=True, sort_keys=sort_keys, width=width)
    return text
