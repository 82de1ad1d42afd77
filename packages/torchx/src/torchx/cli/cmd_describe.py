"""The older path of ``torchx describe``."""

from __future__ import annotations

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdDescribe(WrappedCommand):
    """The command ``torchx describe``."""

    command_name = "describe"


face(__name__)
