# Type stub: the names of the module beside it.
from torchx.runner import api as api
from torchx.runner import config as config
from torchx.runner import events as events
from torchx_runner.api import Runner as Runner
from torchx_runner.api import get_runner as get_runner
from torchx_runner.async_runner.api import AsyncRunner as AsyncRunner
