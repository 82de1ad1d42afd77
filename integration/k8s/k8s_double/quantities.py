"""Quantities as Kubernetes writes them: ``100m``, ``1Gi``, ``2``."""

from __future__ import annotations

import re
from decimal import Decimal

PATTERN = re.compile(
    r"^([+-]?(?:\d+\.?\d*|\.\d+))(m|u|n|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?$"
)
REFUSAL = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "u": Decimal("0.000001"),
    "n": Decimal("0.000000001"),
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTPE")},
}


def parsed(text: object) -> Decimal:
    """Return the number of a quantity.

    Raises:
        ValueError: The text is not a quantity.
    """
    found = PATTERN.match(str(text))
    if found is None:
        raise ValueError(REFUSAL)
    number, unit = Decimal(found[1]), found[2] or ""
    if unit[:1] in ("e", "E") and unit[1:]:
        return number * Decimal(10) ** int(unit[1:])
    return number * _UNITS[unit]


def shown(number: Decimal) -> str:
    """Return a number as the messages of quotas show it."""
    if number == number.to_integral_value():
        return str(int(number))
    return f"{int(number * 1000)}m"
