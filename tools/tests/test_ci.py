"""``.ci/run`` leaves nothing out."""

from __future__ import annotations

import re

import distributions


def test_the_lanes_have_every_folder_of_integration_tests_once() -> None:
    script = (distributions.ROOT / ".ci" / "run").read_text("utf-8")
    lanes = re.findall(r"integration -- ([a-z0-9 ]+?)(?: \|\||$)", script, re.M)
    folders = sorted(
        {path.parent.name for path in (distributions.ROOT / "integration").glob("*/test_*.py")}
    )
    assert len(lanes) == 2
    assert sorted(" ".join(lanes).split()) == folders
