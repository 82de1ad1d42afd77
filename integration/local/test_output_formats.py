"""Test of docs/output-formats.md: each command prints JSON with the keys that the page shows.

With ``TORCHX_WRITE_SESSIONS=1``, write the output of the commands into the page instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = re.compile(r"^```\w+ title=(\S+)\n(.*?)^```$", re.M | re.S)
SAMPLE = re.compile(r"^```sh\n([^`]*)```$([^`]*(?:`[^`\n]+`[^`]*)*)^```json\n([^`]*)```$", re.M)


def test_the_samples_have_the_keys_that_commands_print(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    page = repository / "docs" / "output-formats.md"
    text = page.read_text("utf-8")
    folder = tmp_path / "project"
    folder.mkdir()
    for name, content in FILE.findall(text):
        (folder / name).write_text(content, "utf-8")
    samples = list(SAMPLE.finditer(text))
    assert len(samples) == text.count("```json\n") == text.count("```sh\n")
    printed = [_json(sample[1], folder, environment) for sample in samples]
    if os.environ.get("TORCHX_WRITE_SESSIONS") == "1":
        for sample, value in reversed(list(zip(samples, printed, strict=True))):
            shown = json.dumps(_shortened(value), indent=2) + "\n"
            text = text[: sample.start(3)] + shown + text[sample.end(3) :]
        page.write_text(text, "utf-8")
        return
    for sample, value in zip(samples, printed, strict=True):
        assert _keys(json.loads(sample[3])) == _keys(value), sample[1]


def _json(commands: str, folder: Path, environment: dict[str, str]) -> Any:
    """Run command lines in bash; return the JSON in the last lines of their output."""
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    start = re.search(r"^[\[{]", done.stdout, re.M)
    assert start is not None, f"{commands}{done.stdout}{done.stderr}"
    output = done.stdout[start.start() :]
    for path, name in ((environment["HOME"], ""), (folder, "/project"), (sys.prefix, "/.venv")):
        output = output.replace(str(path), f"/home/ada{name}")
    return json.loads(output)


def _shortened(value: Any) -> Any:
    """Return a value with only the first element of each list, except texts."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return [_shortened(value[0])]
    return value


def _keys(value: Any) -> Any:
    """Return the keys of a value, of its dictionaries and of the first elements of its lists."""
    if isinstance(value, dict):
        return {key: _keys(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_keys(each) for each in value[:1]]
    return None
