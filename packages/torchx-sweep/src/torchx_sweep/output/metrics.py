"""Reads the metadata and metrics that the elements of a sweep have recorded in trackers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.trackers.recorded import recorded

if TYPE_CHECKING:
    from torchx_sweep.store import ElementRecord


def read_metrics(
    elements: Sequence[ElementRecord],
    configs: Mapping[str, str | None],
    reserved: Iterable[str] = (),
) -> dict[int, dict[str, Any]]:
    """Return the newest values that elements have recorded, by number of the element.

    Args:
        elements: The elements.
        configs: Maps the name of each configured tracker to its configuration, which may be None.
        reserved: The names of the other columns, such as the parameters; see :func:`.recorded`.
    """
    submitted = [element for element in elements if element.handle]
    found = recorded([element.handle for element in submitted], configs, reserved)
    return {
        element.number: {name: metric.last for name, metric in metrics.items()}
        for element, metrics in zip(submitted, found, strict=True)
        if metrics
    }
