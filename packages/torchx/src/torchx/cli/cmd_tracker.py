"""Import path of the command ``torchx tracker`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdTracker="tracker")
