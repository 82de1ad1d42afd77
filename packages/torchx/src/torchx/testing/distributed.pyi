# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_testing.distributed import DistributedTestCase as DistributedTestCase
from torchx_testing.distributed import Ret as Ret
from torchx_testing.fixtures import TestWithTmpDir as TestWithTmpDir
