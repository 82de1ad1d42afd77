# Type stub: the names of the module beside it.
from torchx_testing.distributed import DistributedTestCase as DistributedTestCase
from torchx_testing.distributed import Ret as Ret
from torchx_testing.fixtures import TestWithTmpDir as TestWithTmpDir
