# Type stub: the names of the module beside it.
from typing import Any
from torchx.schedulers._factories import get_scheduler_factories as get_scheduler_factories
from torchx_runner.config.api import CONFIG_FILE as CONFIG_FILE
from torchx_runner.config.api import CONFIG_PREFIX_DELIM as CONFIG_PREFIX_DELIM
from torchx_runner.config.api import apply as apply
from torchx_runner.config.api import dump as dump
from torchx_runner.config.api import find_configs as find_configs
from torchx_runner.config.api import get_config as get_config
from torchx_runner.config.api import get_configs as get_configs
from torchx_runner.config.api import load as load
from torchx_runner.config.api import load_sections as load_sections
from torchx_specs.errors import InvalidRunConfigException as InvalidRunConfigException
from torchx_specs.options.run_options import runopt as runopt
from torchx.util.types import get_type_name as get_type_name
from torchx_specs.schedulers.api import Scheduler as Scheduler
from torchx_specs.settings import ENV_TORCHXCONFIG as ENV_TORCHXCONFIG

DEFAULT_CONFIG_DIRS: Any
