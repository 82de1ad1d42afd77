"""Checks of the options that the schedulers of batch systems have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchx_kit.jobs.attempts import attempt_problems
from torchx_specs.errors import nearest


def common_problems(
    opts: Mapping[str, Any], texts: Iterable[str], choices: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the problems of the options' values, one line each.

    Args:
        opts: The options; those of :class:`~torchx_kit.jobs.attempts.AttemptOpts` are checked, too.
        texts: Names of options whose values must not have control characters.
        choices: The valid values of options by the name of the option.
    """
    yield from attempt_problems(opts)
    for name in texts:
        value = opts[name]
        if isinstance(value, str) and re.search(r"[\0-\x1f\x7f]", value):
            yield f"option {name}: {value!r} contains a control character"
    for name, valid in choices.items():
        value = opts[name]
        if value and value not in valid:
            hint = nearest(value, valid)
            text = f"option {name}: '{value}' is not one of {', '.join(valid)};{hint}"
            yield text.removesuffix(";")
