"""Tests of the removal of unused images, with a double of the engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("docker")

from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace.pruning import PruneQuery
from torchx_workspace_docker.engine import build, pruning
from torchx_workspace_docker.image_config import CREATED_BY, LABEL_BASE, LABEL_WORKSPACE

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


def removed(
    now: dict[str, Any], monkeypatch: pytest.MonkeyPatch, found: pruning._Image | None = None
) -> list[str]:
    """Remove an image; return the names that were removed.

    Args:
        now: The engine's description of the image at the time of the removal.
        monkeypatch: Replaces the engine.
        found: The image when it was found; by default, it had two tags.
    """
    found = found or pruning._Image.from_engine(described(TAGS, "2026-01-02T00:00:00Z"))
    calls: list[str] = []
    api = SimpleNamespace(
        inspect_image=lambda name: now, remove_image=lambda name, noprune: calls.append(name)
    )
    client = SimpleNamespace(api=api, close=lambda: None)
    monkeypatch.setattr(pruning, "connect", lambda: client)
    pruning._remove(found)
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


@pytest.mark.parametrize(
    ("last_step", "is_own"),
    [
        (CREATED_BY, True),
        (f"/bin/sh -c #(nop)  LABEL {LABEL_BASE}=sha256:0", True),
        # Engines whose images containerd stores make one step for each label.
        (f"LABEL {LABEL_WORKSPACE}=/project", True),
        ("ENV MINE=1", False),
    ],
)
def test_images_of_workspaces_are_recognised_by_their_last_step(
    last_step: str, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = described(TAGS[:1], "2026-01-02T00:00:00Z")
    api = SimpleNamespace(
        images=lambda: [{"Id": data["Id"]}],
        inspect_image=lambda name: data,
        history=lambda name: [{"CreatedBy": last_step}, {"CreatedBy": "ADD rootfs.tar /"}],
        containers=lambda **_: [],
    )
    client = SimpleNamespace(api=api, close=lambda: None)
    monkeypatch.setattr(pruning, "connect", lambda: client)
    found = pruning.unused_images(PruneQuery(0.0, include_newest=True))
    assert [one.name for one in found] == (TAGS[:1] if is_own else [])


def test_image_that_a_build_uses_again_was_just_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines whose images containerd stores keep the time of a tag that exists already."""
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    data = described(TAGS, "2026-01-02T00:00:00Z")
    api = SimpleNamespace(inspect_image=lambda name: data, tag=lambda *_: True)
    client: Any = SimpleNamespace(api=api)
    before = pruning._Image.from_engine(data)
    assert build._up_to_date_image(client, TAGS[0], "sha256:0") == data["Id"]
    assert pruning._Image.from_engine(data).used > before.used
    with pytest.raises(WorkspaceError, match="it was just used"):
        removed(data, monkeypatch, before)
