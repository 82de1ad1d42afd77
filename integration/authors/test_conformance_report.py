"""Test of ``torchx conformance`` in a fresh environment, on ``local_cwd``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def test_the_report_of_local_cwd(make_site: Callable[[], Any]) -> None:
    site = make_site()
    site.install("torchx-cli", "torchx-sched-local")
    missing = site.run("torchx", "conformance", "-s", "local_cwd")
    assert missing.returncode == 2
    assert "run: pip install torchx-testing" in missing.stderr
    site.install("torchx-testing")
    said = site.check("torchx", "conformance", "-s", "local_cwd", "--report", "report")
    data = json.loads((site.work / "report" / "report.json").read_text())
    summary = data["summary"]
    assert summary["failed"] == 0
    assert summary["passed"] > 80
    lacking = set(data["unsupported"])
    assert {"cancel_pending", "secrets", "dependencies"} <= lacking
    assert not lacking & {"exec", "logs", "ports", "requeue"}
    assert {"torchx-cli", "torchx-sched-local", "torchx-testing"} <= {
        name.replace("_", "-") for name in data["versions"]
    }
    assert f"local_cwd: {summary['passed']} passed, 0 failed" in said
    page = (site.work / "report" / "index.html").read_text()
    assert "test_hostile_values" in page
    assert "local_cwd" in (site.work / "report" / "badge.svg").read_text()
    assert site.check("torchx", "list", "-s", "local_cwd", "-o", "json").strip() == "[]"
