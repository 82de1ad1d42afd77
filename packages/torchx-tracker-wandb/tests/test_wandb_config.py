from __future__ import annotations

import subprocess
import sys

import pytest

from torchx_specs.trackers.api import TrackerValueError
from torchx_tracker_wandb import WandbTracker, create_tracker
from torchx_tracker_wandb.config import read_config


def test_all_forms_are_read() -> None:
    assert read_config(None) == read_config(" ") == {}
    assert read_config("project=p; entity = e;dir=") == {"project": "p", "entity": "e"}
    assert read_config("data:,project%3Dp%0Amode%3Doffline") == {"project": "p", "mode": "offline"}


def test_launcher_passes_the_keys_of_the_section() -> None:
    config = "data:,project%3Dp"
    assert create_tracker.inline_config(config) == config  # type: ignore[attr-defined]
    tracker = create_tracker(config)
    assert isinstance(tracker, WandbTracker)
    assert repr(tracker) == "<WandbTracker: project=p, entity=None, mode=None>"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("projekt=p", "unknown setting 'projekt'; did you mean 'project'"),
        ("api_key=secret", "unknown setting 'api_key'.*valid settings: dir, entity, mode, project"),
        ("mode=ofline", "mode 'ofline' is invalid; did you mean 'offline'"),
        ("my-project", "'my-project' has no '='"),
    ],
)
def test_invalid_configuration_is_an_error(config: str, message: str) -> None:
    with pytest.raises(TrackerValueError, match=message) as caught:
        create_tracker(config)
    assert "secret" not in str(caught.value)


def test_wandb_is_imported_by_the_first_record_only() -> None:
    code = (
        "import sys, torchx_tracker_wandb.plugin\n"
        "print([m for m in sys.modules if m.startswith('torchx_tracker_wandb.')])\n"
        "from torchx_tracker_wandb import create_tracker\n"
        "create_tracker('project=p')\n"
        "print('wandb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["['torchx_tracker_wandb.plugin']", "False"]
