"""Runs the tests of ``torchx exec``, ``shell``, ``cp`` and ``forward`` with local apps."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inside_cases import InsideCases


class TestInsideLocal(InsideCases):
    run = ("-s", "local_cwd", "--detach")
