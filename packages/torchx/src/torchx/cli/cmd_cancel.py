"""Import path of the command ``torchx cancel`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdCancel="cancel")
