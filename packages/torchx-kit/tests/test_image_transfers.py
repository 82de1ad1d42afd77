"""Tests of the progress of pulls and pushes, with events as the Docker Engine sends them."""

from __future__ import annotations

from typing import Any

from torchx_kit.images.transfers import with_progress
from torchx_kit.progress import Step, show_progress


def event(status: str, layer: str = "", current: int = 0, total: int = 0) -> dict[str, Any]:
    detail = {"current": current, "total": total} if total else {}
    return {"status": status, "id": layer, "progressDetail": detail}


def reported(events: list[dict[str, Any]], **options: bool) -> list[tuple[str, int, int | None]]:
    seen: list[tuple[str, int, int | None]] = []

    def display(step: Step) -> None:
        report = (step.name, step.done, step.total)
        if report not in seen:
            seen.append(report)

    with show_progress(display):
        assert list(with_progress("base:1", events, **options)) == events
    return seen


def test_bytes_of_all_layers_are_one_step() -> None:
    events = [
        event("Pulling from base", "1"),
        event("Pulling fs layer", "a"),
        event("Already exists", "c"),
        event("Downloading", "a", 10, 100),
        event("Downloading", "b", 5, 50),
        event("Download complete", "b"),
        event("Downloading", "a", 100, 100),
        event("Extracting", "a", 1, 100),
        event("Pull complete", "a"),
        {"status": "Status: Downloaded newer image"},
    ]
    assert reported(events) == [
        ("pulling base:1", 0, None),
        ("pulling base:1", 10, 100),
        ("pulling base:1", 15, 150),
        ("pulling base:1", 60, 150),
        ("pulling base:1", 150, 150),
        ("extracting base:1", 0, None),
        ("extracting base:1", 1, 100),
        ("extracting base:1", 100, 100),
    ]
    assert reported(events, quiet=True) == []


def test_push_and_sizes_that_are_too_small() -> None:
    events = [event("Pushing", "a", 30, 20), event("Pushed", "a"), {"aux": {"Digest": "sha256:0"}}]
    assert reported(events) == [("pushing base:1", 0, None), ("pushing base:1", 20, 20)]


def test_events_without_sizes_are_no_step() -> None:
    assert reported([event("Pulling fs layer", "a"), {"error": "denied"}, {}]) == []


def test_abandoned_transfer_ends_its_steps() -> None:
    ended: list[bool] = []
    with show_progress(lambda step: ended.append(step.has_ended)):
        events = with_progress("base:1", [event("Downloading", "a", 1, 2)] * 3)
        next(events)
        events.close()
    assert ended[-1] is True
