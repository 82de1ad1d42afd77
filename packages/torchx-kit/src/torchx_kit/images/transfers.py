"""Progress of the transfers of a Docker Engine: pulls and pushes of images."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from torchx_kit.progress import Step

#: Maps the status of a layer in the engine's events to the first word of the step's name.
_STEPS = {"Downloading": "pulling", "Extracting": "extracting", "Pushing": "pushing"}
#: Maps each step to the statuses of a layer whose bytes were all transferred or extracted.
_FINISHED = {
    "pulling": ("Verifying Checksum", "Download complete", "Extracting", "Pull complete"),
    "extracting": ("Pull complete",),
    "pushing": ("Pushed",),
}


def with_progress(
    image: str, events: Iterable[Mapping[str, Any]], quiet: bool = False
) -> Generator[Mapping[str, Any], None, None]:
    """Yield the events of a pull or push, and report the bytes of all layers together.

    The engine reports the size of one layer after the other, so the total may grow.

    Args:
        image: Name of the image, which the progress shows.
        events: The engine's events.
        quiet: If True, report no progress.
    """
    steps: dict[str, Step] = {}
    layers: dict[str, dict[str, tuple[int, int]]] = {}
    with ExitStack() as stack:
        for event in events:
            status, layer = str(event.get("status") or ""), str(event.get("id") or "")
            kind = _STEPS.get(status)
            detail = event.get("progressDetail") or {}
            if kind is not None and detail.get("total"):
                total = int(detail["total"])
                layers.setdefault(kind, {})[layer] = (min(int(detail["current"]), total), total)
            for name, sizes in layers.items():
                if layer in sizes and status in _FINISHED[name]:
                    sizes[layer] = (sizes[layer][1], sizes[layer][1])
                if name not in steps:
                    steps[name] = stack.enter_context(Step(f"{name} {image}", quiet=quiet))
                if layer in sizes:
                    done, whole = (sum(part) for part in zip(*sizes.values(), strict=True))
                    steps[name].set(done, whole)
            yield event
