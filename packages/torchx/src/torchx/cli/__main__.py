"""The entry point of ``python -m torchx.cli``."""

from torchx_cli.__main__ import main

main()
