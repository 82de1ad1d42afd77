"""Import path of the commands ``torchx run`` and ``torchx builtins`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdBuiltins="builtins", CmdRun="run")
