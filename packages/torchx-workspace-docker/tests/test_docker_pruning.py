"""Tests of the removal of unused images, with a double of the engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("docker")

from torchx_specs.errors import WorkspaceError
from torchx_workspace_docker.engine import pruning
from torchx_workspace_docker.image_config import LABEL_BASE

TAGS = [f"torchx-workspace:{digit * 64}" for digit in "ab"]


def described(tags: list[str], tagged: str) -> dict[str, Any]:
    """Return the engine's description of an image."""
    return {
        "Id": "sha256:1",
        "RepoTags": tags,
        "Metadata": {"LastTagTime": tagged},
        "Created": "2026-01-01T00:00:00Z",
        "Config": {"Labels": {LABEL_BASE: "sha256:0"}},
        "RootFS": {"Layers": []},
    }


def removed(now: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Remove an image that had two tags when it was found; return the names that were removed.

    Args:
        now: The engine's description of the image at the time of the removal.
    """
    calls: list[str] = []
    api = SimpleNamespace(
        inspect_image=lambda name: now, remove_image=lambda name, noprune: calls.append(name)
    )
    client = SimpleNamespace(api=api, close=lambda: None)
    monkeypatch.setattr(pruning, "connect", lambda: client)
    pruning._remove(pruning._Image.from_engine(described(TAGS, "2026-01-02T00:00:00Z")))
    return calls


@pytest.mark.parametrize("left", [TAGS[1:], []])
def test_image_that_another_prune_removes_is_not_in_use(
    left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Docker 26 sets the time of the last tag also when a tag is removed.
    assert removed(described(left, "2026-01-03T00:00:00Z"), monkeypatch) == TAGS


@pytest.mark.parametrize(
    "now",
    [
        described(TAGS, "2026-01-03T00:00:00Z"),
        described([*TAGS, "users-own:1"], "2026-01-02T00:00:00Z"),
        described([TAGS[0], "users-own:1"], "2026-01-02T00:00:00Z"),
    ],
    ids=["used again", "another tag", "one tag replaced"],
)
def test_image_that_was_used_since_it_was_found_stays(
    now: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkspaceError, match="it was just used"):
        removed(now, monkeypatch)
