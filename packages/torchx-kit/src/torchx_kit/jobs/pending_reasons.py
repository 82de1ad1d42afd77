"""Explanations of the reasons that a scheduler gives for pending apps."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What many tables say.
SMALLER = "wait; fewer or smaller replicas start earlier"
LIMIT = "a limit of your account, queue or quality of service is reached"
LESS_OF_LIMIT = "wait for your other jobs, cancel one, or use another account or queue"


def explained(reason: str, table: Iterable[tuple[str, str, str]]) -> str:
    r"""Return a reason with its meaning and a remedy; an unknown reason is returned unchanged.

    >>> explained("Priority", [(r"\bPriority\b", "other jobs come first", "wait")])
    'Priority: other jobs come first; wait'

    Args:
        reason: The scheduler's text.
        table: Patterns with the meaning and the remedy of each; the first that matches applies.
    """
    for pattern, meaning, remedy in table:
        if re.search(pattern, reason[:2000]):
            return f"{reason}: {meaning}; {remedy}"
    return reason
