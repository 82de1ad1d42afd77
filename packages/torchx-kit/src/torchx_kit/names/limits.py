"""Change names so that they satisfy the naming rules of a system.

>>> fit_name("My Trainer", DNS_LABEL)
'my-trainer'
>>> fit_name("x" * 70, DNS_LABEL) == fit_name("x" * 70, DNS_LABEL)
True
>>> fit_names(["a_b", "a-b"], DNS_LABEL)["a-b"]
'a-b'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from torchx_kit.names.ids import as_letters

_TAG_LENGTH = 6


class NameRule(NamedTuple):
    """The names that a system accepts.

    Args:
        max_length: The longest name, in characters, or in bytes of UTF-8 if ``in_bytes``.
        allowed: The characters that a name may contain, as the inside of a regular expression's
            ``[...]``.
        first: The characters that a name may begin with; empty means ``allowed``.
        last: The characters that a name may end with; empty means ``allowed``.
        replacement: Replaces a run of characters that are not allowed, and joins a shortened name
            and its tag.
        lower: Whether upper-case letters are first converted to lower case.
        fallback: The name if no character is left.
        in_bytes: Whether ``max_length`` counts bytes.
    """

    max_length: int
    allowed: str
    first: str = ""
    last: str = ""
    replacement: str = "-"
    lower: bool = False
    fallback: str = "x"
    in_bytes: bool = False

    def accepts(self, name: str) -> bool:
        """Return True if ``name`` is valid unchanged."""
        length = len(name.encode("utf-8", "surrogatepass")) if self.in_bytes else len(name)
        return length <= self.max_length and _patterns(self)[0].match(name) is not None

    def within(self, max_length: int) -> NameRule:
        """Return the same rule with another ``max_length``."""
        return self._replace(max_length=max_length)

    def clean(self, name: str) -> str:
        """Return ``name`` with only allowed characters; it may be empty or too long."""
        if self.lower:
            name = name.lower()
        _, others, not_first, not_last = _patterns(self)
        return not_last.sub("", not_first.sub("", others.sub(self.replacement, name)))

    def cut(self, name: str, length: int) -> str:
        """Return the longest valid beginning of a clean name; ``length`` limits it."""
        if self.in_bytes:
            start = name.encode("utf-8", "surrogatepass")[:length].decode("utf-8", "ignore")
        else:
            start = name[:length]
        return _patterns(self)[3].sub("", start)


@functools.cache
def _patterns(
    rule: NameRule,
) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    # Compiled on first use, because compiling takes longer than importing this module.
    first = rule.first or rule.allowed
    last = rule.last or rule.allowed
    return (
        re.compile(f"[{first}](?:[{rule.allowed}]*[{last}])?\\Z"),
        re.compile(f"[^{rule.allowed}]+"),
        re.compile(f"\\A[^{first}]+"),
        re.compile(f"[^{last}]+\\Z"),
    )


#: Host names and Kubernetes objects (RFC 1123 labels).
DNS_LABEL = NameRule(63, "a-z0-9-", first="a-z0-9", last="a-z0-9", lower=True)
#: Kubernetes Services (RFC 1035 labels), which begin with a letter.
DNS_SERVICE = NameRule(63, "a-z0-9-", first="a-z", last="a-z0-9", lower=True)
#: Values of Kubernetes labels. Kubernetes accepts empty values, too; this rule does not.
LABEL_VALUE = NameRule(63, "A-Za-z0-9_.-", first="A-Za-z0-9", last="A-Za-z0-9")
#: Containers of Docker Engine.
CONTAINER = NameRule(128, "A-Za-z0-9_.-", first="A-Za-z0-9")
#: Jobs and job definitions of AWS Batch.
AWS_BATCH = NameRule(128, "A-Za-z0-9_-", first="A-Za-z0-9")
#: Jobs of Amazon SageMaker.
SAGEMAKER = NameRule(63, "A-Za-z0-9-", first="A-Za-z0-9", last="A-Za-z0-9")
#: Jobs of Slurm and LSF: no characters with a meaning in names of output files or job arrays.
BATCH_JOB = NameRule(128, "A-Za-z0-9_.+-", first="A-Za-z0-9_", replacement="_")
#: Files and folders: letters and digits of any script, no path separators, no dot at the beginning.
FILE = NameRule(200, r"\w.,:+=@%~-", first=r"\w,:+=@%~", replacement="_", in_bytes=True)


def fit_name(name: str, rule: NameRule, *, distinct: bool = False) -> str:
    """Return a name that ``rule`` accepts; the same name always gives the same result.

    A name that is too long keeps its beginning and gets a tag, which is a digest of the whole name.
    So two long names that differ only at their ends stay different.

    Args:
        name: The name.
        rule: The names that are accepted.
        distinct: Whether every changed name gets the tag, not only a shortened one.
    """
    if rule.accepts(name):
        return name
    cleaned = rule.clean(name) or rule.fallback
    if rule.accepts(cleaned) and not distinct:
        return cleaned
    return _tagged(cleaned, name, rule)


def fit_names(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """Map each name to a name that ``rule`` accepts; no two names get the same result.

    Valid names stay unchanged. A changed name gets a tag if it would equal another name.
    """
    names = list(dict.fromkeys(names))
    fitted = {name: name for name in names if rule.accepts(name)}
    taken = set(fitted)
    for name in names:
        if name in fitted:
            continue
        candidate = fit_name(name, rule)
        attempt = 0
        while candidate in taken:
            candidate = _tagged(rule.clean(name) or rule.fallback, f"{name}{'#' * attempt}", rule)
            attempt += 1
        fitted[name] = candidate
        taken.add(candidate)
    return {name: fitted[name] for name in names}


def _tagged(cleaned: str, name: str, rule: NameRule) -> str:
    from hashlib import blake2b

    # The tag is a digest of the name as a few letters and digits.
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    tag = as_letters(int.from_bytes(digest, "big"), _TAG_LENGTH)
    room = rule.max_length - len(tag) - len(rule.replacement)
    head = rule.cut(cleaned, room) if room > 0 else ""
    if not head:
        return tag[: rule.max_length]
    return f"{head}{rule.replacement}{tag}"
