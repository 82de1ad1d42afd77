"""The entry point of ``python -m torchx.cli``."""

from __future__ import annotations

from torchx_cli.main import main

main()
