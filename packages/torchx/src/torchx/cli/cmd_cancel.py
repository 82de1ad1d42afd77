"""Import path of the command ``torchx cancel`` in older TorchX releases."""

from torchx.cli._names import face

face(__name__, CmdCancel="cancel")
