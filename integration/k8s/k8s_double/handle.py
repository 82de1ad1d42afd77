"""A handle with which tests start and control a double in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

START_SECONDS = 30.0


class DoubleError(Exception):
    """The double did not start, or could not carry out a call."""


class Double:
    """A running double, which has every public method of :class:`k8s_double.control.Control`.

    Args:
        folder: A new or empty folder.
        *options: Further arguments of ``python -m k8s_double``.

    Raises:
        DoubleError: The double did not start.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        here = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "k8s_double", str(folder), "--parent", str(os.getpid())]
        with open(folder / "double.log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not (folder / "control.json").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DoubleError((folder / "double.log").read_text(errors="replace")[-2000:])
            time.sleep(0.02)
        self._control = json.loads((folder / "control.json").read_text())

    @property
    def path(self) -> Path:
        """Path of the kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def pid(self) -> int:
        return self._process.pid

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any, **named: Any) -> Any:
            from inspect import signature

            from k8s_double.control import Control

            named = dict(signature(getattr(Control, name)).bind(None, *args, **named).arguments)
            named.pop("self")
            for key in ("how", "row"):
                named.update(named.pop(key, {}))
            return self._call(name, named)

        return call

    def _call(self, name: str, named: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._control['port']}/{name}",
            json.dumps(named).encode(),
            {"X-Double": self._control["secret"]},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise DoubleError(json.load(e)) from None

    def close(self) -> None:
        """End the double and all processes of its pods."""
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
