"""Import path of the command ``torchx delete`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdDelete="delete")
