# Type stub: the names of the module beside it.
from torchx_testing.fixtures import IS_CI as IS_CI
from torchx_testing.fixtures import IS_MACOS as IS_MACOS
from torchx_testing.fixtures import TestWithTmpDir as TestWithTmpDir
from torchx_testing.fixtures import write_shell_script as write_shell_script
