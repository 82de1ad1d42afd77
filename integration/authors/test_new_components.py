"""Tests that components from `torchx components new` run without changes; ddp in a dry run."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from patience import wait_for


@pytest.fixture
def site(make_site: Callable[[], Any]) -> Any:
    site = make_site()
    site.install("torchx-cli", "torchx-sched-local", "torchx-components")
    return site


def run(site: Any, *arguments: str) -> str:
    """Submit a detached app, and return its handle."""
    handle: str = site.check("torchx", "run", "-s", "local_cwd", "--detach", *arguments).strip()
    return handle


def test_a_script(site: Any) -> None:
    site.check("torchx", "components", "new", "tune")
    handle = run(site, "tune.py:tune", "--", "--lr", "0.5")
    site.check("torchx", "wait", handle)
    assert site.check("torchx", "log", handle).endswith("learning rate: 0.5\n")


def test_a_hydra_application(site: Any) -> None:
    site.install("hydra-core>=1.3")
    site.check("torchx", "components", "new", "tune", "--template", "hydra")
    handle = run(site, "tune.py:tune", "--", "optimizer.lr=0.25")
    site.check("torchx", "wait", handle)
    assert site.check("torchx", "log", handle).endswith("learning rate: 0.25\n")


def test_a_service(site: Any) -> None:
    site.check("torchx", "components", "new", "api", "--template", "service")
    handle = run(site, "api.py:api", "--port", "0")
    try:
        shows_port = re.compile(r"listening on port (\d+)").search
        port = wait_for(lambda: shows_port(site.run("torchx", "log", handle).stdout))
        assert port is not None
        with urllib.request.urlopen(f"http://localhost:{port[1]}/healthz") as answer:
            assert json.load(answer) == {"status": "ok"}
    finally:
        site.check("torchx", "cancel", handle)
    status = json.loads(site.check("torchx", "status", "-o", "json", handle))
    assert status["state"] == "CANCELLED"


def test_ddp_starts_torchrun_with_the_script(site: Any) -> None:
    """Check only the request of the dry run; integration/pytorch runs the component."""
    site.check("torchx", "components", "new", "fit", "--template", "ddp")
    arguments = ["run", "-s", "local_cwd", "--dryrun", "-o", "json", "fit.py:fit", "-j", "1x2"]
    shown = json.loads(site.check("torchx", *arguments, "--", "--steps", "5"))
    assert "torchrun" in json.dumps(shown)
    assert "fit_job.py --steps 5" in json.dumps(shown)
