"""The older path of ``torchx cancel``."""

from __future__ import annotations

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdCancel(WrappedCommand):
    """The command ``torchx cancel``."""

    command_name = "cancel"


face(__name__)
