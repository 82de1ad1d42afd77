"""The entry point of ``python -m torchx.cli``."""

from torchx_cli.main import main

main()
