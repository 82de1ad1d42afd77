"""Reading and writing JSON and YAML, for AppDef documents and overlay files.

The libraries silently accept duplicate keys, and the JSON library also accepts NaN and Infinity;
here they are errors. YAML is read with the safe loader, extended by ``!!python/tuple``, which
overlays use.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from torchx_specs.errors import RequestError, one_line

#: The largest document that is read, in bytes.
MAX_BYTES = 16 * 1024 * 1024
#: The largest number of values that the aliases (``*name``) of a YAML document may repeat.
MAX_ALIASED = 200_000
#: The largest number of levels of dicts and lists. Functions that call themselves for each level,
#: such as :func:`copy.deepcopy`, would otherwise exceed Python's limit on nested calls.
MAX_DEPTH = 100
#: The problem of data that is nested too deeply, for error messages.
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels, or contains itself"
# libyaml refuses the escapes of lone surrogates, which Python uses for bytes that are not UTF-8.
_SURROGATE = re.compile(r"\\[uU]0*[dD][89a-fA-F]")
# Python cannot show an integer of more than 4300 digits, for example in an error message.
_MAX_DIGITS = 100
# Text that PyYAML does not quote, but other YAML readers take for a number or a boolean.
_AMBIGUOUS = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0[ox][0-9a-fA-F]+|[yYnN]"


def read_text_file(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file; ``~`` at the start of the path is the home directory."""
    try:
        # O_NONBLOCK: opening a named pipe would wait for a writer
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(os.path.expanduser(path), flags), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise RequestError(f"{path}: not a regular file, but a device, pipe or socket")
            return read_text(file, str(path))
    except OSError as e:
        raise RequestError(f"{path}: {(e.strerror or str(e)).lower()}") from None


def read_text(file: IO[bytes], where: str) -> str:
    """Return the text of an open document; more than :data:`MAX_BYTES` is an error.

    Error messages begin with ``where``, the path or the URI of the document.
    """
    data = b""
    # On a network file system, read() may return fewer bytes than requested before the file's end.
    while len(data) <= MAX_BYTES and (chunk := file.read(MAX_BYTES + 1 - len(data))):
        data += chunk
    if len(data) > MAX_BYTES:
        raise RequestError(f"{where}: larger than {MAX_BYTES >> 20} MiB, the most that is read")
    try:
        return data.decode()
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
    """Parse JSON; duplicate keys, NaN, Infinity and very long integers are errors."""
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

    def integer(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise RequestError(f"{where}: {_too_many_digits(digits)}")
        return int(digits)

    try:
        return _checked(
            json.loads(
                text, object_pairs_hook=unique, parse_constant=no_constant, parse_int=integer
            )
        )
    except json.JSONDecodeError as e:
        raise RequestError(
            f"{where}: not valid JSON: {e.msg} (line {e.lineno}, column {e.colno})"
        ) from None
    except RecursionError:
        raise RequestError(f"{where}: {TOO_DEEP}") from None


def parse_yaml(text: str, where: str) -> Any:
    """Parse one YAML document; duplicate keys, very long integers and many aliases are errors."""
    yaml = _yaml(where)
    try:
        loader = _loader_class(is_fast=_SURROGATE.search(text) is None)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _repeated_by_aliases(node) > MAX_ALIASED:
                raise RequestError(
                    f"{where}: YAML aliases (*name) repeat more than {MAX_ALIASED:,} values;"
                    " write the values without aliases"
                )
            return _checked(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.YAMLError as e:
        raise RequestError(f"{where}: not valid YAML: {_with_position(e)}") from None
    except RecursionError:
        raise RequestError(f"{where}: {TOO_DEEP}") from None
    except RequestError:
        raise
    except (ValueError, TypeError) as e:  # an invalid date (`2024-13-01`), or a key that is a list
        raise RequestError(f"{where}: not valid YAML: {e}") from None


def is_too_deep(data: object) -> bool:
    """Return True if data has more than :data:`MAX_DEPTH` levels, or contains itself."""
    if not data or isinstance(data, (str, int)):  # as most fields of an app are
        return False
    level: dict[int, Any] = {0: [data]}  # each object once: data may contain a list many times
    for _ in range(MAX_DEPTH + 1):
        level = {
            id(item): item
            for value in level.values()
            for item in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(item, (dict, list, tuple, Mapping))
        }
        if not level:
            return False
    return True


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
    dumper = _dumper_class()
    text: str = yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return text


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


def _repeated_by_aliases(root: Any) -> int:
    """Return how many nodes a YAML document would gain if its aliases were written out."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1  # set first, so that a node that contains itself is counted once
            if isinstance(node.value, list):
                items = node.value if node.id == "sequence" else [n for p in node.value for n in p]
                sizes[id(node)] += sum(map(size, items))
        return sizes[id(node)]

    return size(root) - len(sizes)


def _too_many_digits(digits: str) -> str:
    return f"the integer {digits[:20]}... has more than {_MAX_DIGITS} digits"


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

    def construct_int(loader: Any, node: Any) -> int:
        digits = loader.construct_scalar(node)
        if len(digits) > _MAX_DIGITS:
            problem = _too_many_digits(digits)
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return int(loader.construct_yaml_int(node))

    Loader.add_constructor("tag:yaml.org,2002:int", construct_int)
    Loader.add_constructor("tag:yaml.org,2002:python/tuple", construct_tuple)
    return Loader


def represent_text(dumper: Any, text: str) -> Any:
    """Return the YAML node of a text, in a style that every YAML reader reads as the same text.

    For a text with newlines, request a literal block, unless it also has other line breaks. PyYAML
    quotes texts that a literal block cannot contain. A dumper calls this to represent ``str``.
    """
    style = None
    if re.search("[\r\x85\u2028\u2029]", text):
        style = '"'  # in other styles, YAML readers replace these line breaks by "\n"
    elif "\n" in text:
        style = "|"
    elif re.fullmatch(_AMBIGUOUS, text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


@functools.cache
def _dumper_class() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """The safe dumper, without anchors and with list items indented below their key."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, indentless=False)

    Dumper.add_representer(str, represent_text)
    return Dumper
