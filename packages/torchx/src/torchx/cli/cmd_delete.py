"""Import path of the command ``torchx delete`` in older TorchX releases."""

from torchx.cli._names import face

face(__name__, CmdDelete="delete")
