# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_testing.fixtures import IS_CI as IS_CI
from torchx_testing.fixtures import IS_MACOS as IS_MACOS
from torchx_testing.fixtures import TestWithTmpDir as TestWithTmpDir
from torchx_testing.fixtures import write_shell_script as write_shell_script
