"""Reading and writing JSON and YAML, for AppDef documents and overlay files.

The libraries silently accept duplicate keys, and the JSON library also accepts NaN and Infinity;
here they are errors. YAML is read with the safe loader, extended by ``!!python/tuple``, which
overlays use.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.nesting import TOO_DEEP, is_too_deep

# libyaml refuses the escapes of lone surrogates, which Python uses for bytes that are not UTF-8.
_SURROGATE = re.compile(r"\\[uU]0*[dD][89a-fA-F]")
# Text that PyYAML does not quote, but other YAML readers take for a number or a boolean.
_AMBIGUOUS = re.compile(
    r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0[ox][0-9a-fA-F]+|[yYnN])\Z"
)
_LINE_BREAKS = re.compile("[\r\x85\u2028\u2029]")


def read_text_file(path: str | os.PathLike[str]) -> str:
    """Return the text of a file; ``~`` at the start of the path is the home directory."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return decode(file.read(), str(path))
    except OSError as e:
        raise RequestError(f"{path}: {(e.strerror or str(e)).lower()}") from None


def decode(data: bytes, where: str) -> str:
    """Return the text of a document; error messages begin with ``where``, its path or URI."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RequestError(f"{where}: not UTF-8 text ({e.reason} at byte {e.start})") from None


def parse_document(text: str, where: str) -> Any:
    """Parse JSON or YAML; if ``where`` ends with ``.json``, the document must be JSON."""
    if where.endswith(".json"):
        return parse_json(text, where)
    if text.lstrip()[:1] in ("{", "["):  # JSON, or a YAML flow collection
        try:
            return parse_json(text, where)
        except RequestError as not_json:
            try:
                return parse_yaml(text, where)
            except YamlMissingError:
                raise not_json from None
    return parse_yaml(text, where)


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; duplicate keys, NaN and Infinity are errors."""
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise RequestError(f"{where}: key '{key}' is given twice in one object")
            found[key] = value
        return found

    def no_constant(name: str) -> NoReturn:
        raise RequestError(f"{where}: {name} is not a JSON number")

    try:
        return _checked(json.loads(text, object_pairs_hook=unique, parse_constant=no_constant))
    except json.JSONDecodeError as e:
        raise RequestError(
            f"{where}: not valid JSON: {e.msg} (line {e.lineno}, column {e.colno})"
        ) from None
    except RecursionError:
        raise RequestError(f"{where}: {TOO_DEEP}") from None
    except RequestError:
        raise
    except ValueError as e:  # an integer of more digits than Python converts
        raise RequestError(f"{where}: not valid JSON: {e}") from None


def parse_yaml(text: str, where: str) -> Any:
    """Parse one YAML document; duplicate keys are errors."""
    yaml = _yaml(where)
    try:
        loader = _loader_class(is_fast=_SURROGATE.search(text) is None)(text)
        try:
            with _collection_paused():
                return _checked(loader.get_single_data())
        finally:
            loader.dispose()
    except yaml.YAMLError as e:
        raise RequestError(f"{where}: not valid YAML: {_with_position(e)}") from None
    except RecursionError:
        raise RequestError(f"{where}: {TOO_DEEP}") from None
    except (ValueError, TypeError) as e:  # an invalid date (`2024-13-01`), or a key that is a list
        raise RequestError(f"{where}: not valid YAML: {e}") from None


def _checked(data: Any) -> Any:
    """Return the data of a document; raise a RecursionError if it is nested too deeply."""
    if is_too_deep(data):
        raise RecursionError
    return data


def dump_json(data: object) -> str:
    """Return ``data`` as indented JSON that UTF-8 can encode; keys keep their order."""
    import json

    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, which Python uses for bytes that are not UTF-8
        return json.dumps(data, indent=2, allow_nan=False)
    return text


def dump_yaml(data: object) -> str:
    """Return ``data`` as YAML; keys keep their order, and text has :func:`represent_text`'s style.

    A string is quoted if a reader of any YAML version would take it for a number or a boolean.
    """
    yaml = _yaml("YAML output")
    dumper = dumper_class(is_fast=False)
    with _collection_paused():
        text: str = yaml.dump(
            data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 30
        )
    return text


@contextlib.contextmanager
def _collection_paused() -> Iterator[None]:
    """Pause the collection of garbage, which would search all nodes of a document many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class YamlMissingError(RequestError):
    """A document is YAML and PyYAML is not installed."""


def _yaml(where: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise YamlMissingError(
            f"{where}: YAML needs PyYAML: pip install 'torchx-specs[yaml]' (JSON needs nothing)"
        ) from None
    return yaml


def _with_position(error: Any) -> str:
    parts = [getattr(error, name, None) for name in ("context", "problem")]
    problem = " ".join(filter(None, parts)) or one_line(error)
    mark = getattr(error, "problem_mark", None)
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else problem


@functools.cache
def _loader_class(is_fast: bool) -> Any:
    """Return the class that loads YAML by libyaml if ``is_fast`` and PyYAML includes it."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_fast else yaml.SafeLoader

    class Loader(base):  # type: ignore[misc]
        """The safe loader, with tuples; a duplicate key is an error."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                # `<<` may occur twice, and PyYAML adds the keys that it merges only after this loop
                if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                    continue
                if (key.tag, key.value) in seen:
                    problem = f"key '{key.value}' is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    def construct_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:python/tuple", construct_tuple)
    return Loader


def represent_text(dumper: Any, text: str) -> Any:
    """Return the YAML node of a text, in a style that every YAML reader reads as the same text.

    For a text with newlines, request a literal block, unless it also has other line breaks. PyYAML
    quotes texts that a literal block cannot contain. A dumper calls this to represent ``str``.
    """
    style = None
    if _LINE_BREAKS.search(text):
        style = '"'  # in other styles, YAML readers replace these line breaks by "\n"
    elif "\n" in text:
        style = "|"
    elif _AMBIGUOUS.match(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


@functools.cache
def dumper_class(is_fast: bool) -> Any:
    """Return the class that writes YAML by libyaml if ``is_fast`` and PyYAML includes it.

    Only PyYAML's own writer indents list items below their key.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper) if is_fast else yaml.SafeDumper

    class Dumper(base):  # type: ignore[misc]
        """The safe dumper, without anchors."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, indentless=False)

    Dumper.add_representer(str, represent_text)
    return Dumper
