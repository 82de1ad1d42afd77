"""Values that expose quoting, splitting, expansion and decoding errors.

:data:`HOSTILE_VALUES` is a fixed list. No value contains a NUL, which is impossible in arguments
and variables, or a macro that schedulers replace. :data:`NOT_UTF8` is separate: a scheduler whose
service uses JSON cannot pass on such values, and must refuse them.

A role with the arguments from :func:`dump_args` or :func:`python_dump_args` prints its arguments
and its environment, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class HostileValue(NamedTuple):
    """A value, and a name that describes the difficulty of the value."""

    name: str
    text: str


_BLANKS = {
    "empty": "",
    "one blank": " ",
    "two blanks": "  ",
    "leading blank": " a",
    "trailing blank": "a ",
    "blanks within": "a  b",
    "tab": "\t",
    "tab within": "a\tb",
    "newline": "\n",
    "two newlines": "\n\n",
    "leading newline": "\na",
    "trailing newline": "a\n",
    "newlines within": "a\n\nb\n c",
    "carriage return": "\r",
    "carriage return within": "a\rb",
    "trailing carriage return": "a\r",
    "carriage return and newline": "a\r\nb\r\n",
    "no-break space": "a\u00a0b",
    "next line": "a\u0085b",
    "line separator": "a\u2028b",
    "paragraph separator": "a\u2029b",
    "zero-width space": "a\u200bb",
    "ideographic space": "\u3000",
}
_QUOTES = [
    "'", '"', "''", '""', "'a'", '"a"', "it's", 'say "hi"', "'\"'", "\"'\"", "a'b\"c", "'''", '"""',
    "'a' 'b'", "'; exit 7; '", '"; exit 7; "', "\\'", '\\"', "'\\''", "\u2018quoted\u2019",
]  # fmt: skip
_DOLLARS = [
    "$", "$$", "$$$$", "$ ", "a$", "$HOME", "${HOME}", "$$HOME", "$${HOME}", "\\$HOME",
    "${HOME", "$}",
    "${}", "$(echo x)", "$(exit 7)", "`echo x`", "`", "``", "$((1+1))", "${HOME:-x}", "${HOME:=x}",
    "${#HOME}", "$'a\\n'", '$"a"', "$1", "$@", "$*", "$?", "$!", "$-", "$_", "${zz}", "$zz", "$app",
    "$(app_id)", "%{app_id}", "{app_id}", "{{app_id}}", "$app_idx", "${app_ids}", "%HOME%",
    "!!", "!$",
    "!echo", "a!b",
]  # fmt: skip
_GLOBS = [
    "*",
    "?",
    "**/*",
    "[a-z]",
    "[!a]",
    "{a,b}",
    "{1..3}",
    "~",
    "~root",
    "~/x",
    "/*",
    "*.py",
    "./*",
]
_OPERATORS = [
    ";", ";;", "&", "&&", "|", "||", ">", "<", ">>", "<<EOF", "2>&1", ">/dev/null", "(", ")", "()",
    "{", "}", "{ }", "#", "# comment", "a#b", "a # b", "!", "a; b", "a && b", "(a)", "\\",
    "\\\\", "\\n",
    "\\t", "\\0", "\\x41", "\\u0041", "a\\", "\\\n", "a\\\nb", "C:\\dir\\new", "^", "^a^b",
]  # fmt: skip
_DASHES = [
    "-",
    "--",
    "---",
    "-n",
    "-e",
    "-c",
    "--flag",
    "--flag=value",
    "--help",
    "-cfg",
    "-1",
    "-1.5",
]
_SEPARATORS = [
    ":", "::", "a:b", "=", "==", "a=b", "=a", "a=", "a=b=c", ",", "a,b", ",a,", "a,b=c", "/",
    "//", "..",
    "../..", "/etc/passwd", "@", "@file", "a@b", "+", "a+b", "%", "%%", "%j", "%A_%a", "%s",
    "%d", "%n",
    "$(HOSTILE_000)", "$$(HOSTILE_000)", "$(PATH)", "${HOSTILE_000}", "$HOSTILE_000", "%(PATH)s",
    "100%", "a%20b", "+%s", "#SBATCH --exit", "#BSUB -q", "http://a/b?c=d&e=f#g",
    "user:pass@host", "K=V,ALL",
]  # fmt: skip
_FORMATS = [
    "null", "~null", "true", "no", "on", "1", "0", "007", "1e3", "0x10", "1_000", ".5", ".inf",
    "nan",
    "2001-01-01", "- a", "key: value", "key:", "? a", "[1, 2]", "[", "]", "{}", '{"a": "b"}',
    "&a", "*a",
    "!!python/object/apply:os.system", "!tag", "--- a", "...", "|-", ">-", "<a href='b'>&amp;</a>",
    "{{ a }}", "{% a %}", "\\N{DASH}", "None", "undefined", "(null)",
]  # fmt: skip
_UNICODE = {
    "latin": "\u00e9",
    "combining": "e\u0301",
    "sharp s": "\u00df",
    "dotted capital i": "\u0130",
    "greek": "\u0391\u03b2\u03b3",
    "cyrillic": "\u0416\u0438\u0437\u043d\u044c",
    "chinese": "\u4e2d\u6587",
    "arabic": "\u0645\u0631\u062d\u0628\u0627",
    "hebrew": "\u05e9\u05dc\u05d5\u05dd",
    "right-to-left override": "a\u202eb",
    "emoji": "\U0001f600",
    "family joined": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "flag": "\U0001f1eb\U0001f1f7",
    "astral letter": "\U00010348",
    "byte-order mark": "\ufeffa",
    "replacement character": "\ufffd",
    "private use": "\ue000",
    "last code point": "\U0010ffff",
    "full-width quote": "\uff07",
    "mixed": "na\u00efve \u4e2d '\U0001f600' $x",
}
_LONG = {
    "long": "x" * 100_000,
    "long line of quotes": "'" * 5_000,
    "many words": " ".join(["word"] * 2_000),
    "many lines": "line\n" * 2_000,
    "all printable ASCII": "".join(map(chr, range(32, 127))),
    "all printable ASCII, twice each": "".join(chr(c) * 2 for c in range(32, 127)),
}


def _values() -> Iterator[HostileValue]:
    for name, text in _BLANKS.items():
        yield HostileValue(f"blank: {name}", text)
    for title, texts_ in (
        ("quote", _QUOTES),
        ("dollar", _DOLLARS),
        ("glob", _GLOBS),
        ("operator", _OPERATORS),
        ("dash", _DASHES),
        ("separator", _SEPARATORS),
        ("format", _FORMATS),
    ):
        for text in texts_:
            yield HostileValue(f"{title}: {text}", text)
    for code in [*range(1, 32), 127]:
        yield HostileValue(f"control: {code:#04x}", f"a{chr(code)}b")
    for name, text in _UNICODE.items():
        yield HostileValue(f"unicode: {name}", text)
    for name, text in _LONG.items():
        yield HostileValue(f"size: {name}", text)


#: The fixed list of values. Names and texts are unique.
HOSTILE_VALUES: tuple[HostileValue, ...] = tuple(
    {value.text: value for value in _values()}.values()
)

#: Bytes that are not UTF-8, as Python represents them in a text (surrogate escapes).
NOT_UTF8: tuple[HostileValue, ...] = (
    HostileValue("bytes: one", "\udcff"),
    HostileValue("bytes: within text", "a\udc80\udcfeb"),
)

#: A shell script that prints the arguments and the environment of its process. The script needs
#: ``sh`` and ``base64``, for example from busybox.
DUMP_SCRIPT = (
    "echo ARGS-BEGIN; base64 /proc/$$/cmdline; echo ARGS-END;"
    " echo ENV-BEGIN; base64 /proc/$$/environ; echo ENV-END"
)
#: A Python program with the same output, which does not need ``/proc``.
PYTHON_DUMP_SCRIPT = """
import base64, os, sys
args = ["python", "-c", "", "dump", *sys.argv[1:]]
env = [name + b"=" + value for name, value in os.environb.items()]
for title, items in (("ARGS", map(os.fsencode, args)), ("ENV", env)):
    print(title + "-BEGIN")
    text = base64.b64encode(b"".join(item + b"\\0" for item in items)).decode()
    for start in range(0, len(text), 76):
        print(text[start:start + 76])
    print(title + "-END")
"""
_DUMP_HEAD = ["sh", "-c", DUMP_SCRIPT, "dump"]


class Dump(NamedTuple):
    """The arguments and the environment of a process."""

    args: list[str]
    env: dict[str, str]


def dump_args(values: list[str]) -> list[str]:
    """Return arguments with which the entrypoint ``sh`` prints ``values`` and its environment."""
    return ["-c", DUMP_SCRIPT, "dump", *values]


def python_dump_args(values: list[str]) -> list[str]:
    """Return arguments with which the entrypoint Python prints ``values`` and its environment."""
    return ["-c", PYTHON_DUMP_SCRIPT, *values]


def parse_dump(lines: list[str]) -> Dump:
    """Parse the output of :data:`DUMP_SCRIPT` or :data:`PYTHON_DUMP_SCRIPT`.

    Raises:
        ValueError: The output is not complete.
    """
    text = [line.strip() for line in lines]
    args = _decoded(text, "ARGS")
    env = _decoded(text, "ENV")
    pairs = (item.partition("=") for item in env)
    # Skip the first arguments by number, not by value, because the program's name may be a path.
    return Dump(args[len(_DUMP_HEAD) :], {name: value for name, _, value in pairs})


def _decoded(lines: list[str], section: str) -> list[str]:
    import base64

    block = lines[lines.index(f"{section}-BEGIN") + 1 : lines.index(f"{section}-END")]
    data = base64.b64decode("".join(block))
    return [item.decode("utf-8", "surrogateescape") for item in data.split(b"\0")[:-1]]
