# Type stub: the names of the module beside it.
from torchx.util.modules import load_module as load_module
from torchx.util.entrypoints import load_group as load_group
from torchx_specs.settings import ENV_TORCHX_JOB_ID as ENV_TORCHX_JOB_ID
from torchx_specs.settings import ENV_TORCHX_PARENT_RUN_ID as ENV_TORCHX_PARENT_RUN_ID
from torchx_specs.settings import ENV_TORCHX_TRACKERS as ENV_TORCHX_TRACKERS
from torchx_kit.trackers.lookup import tracker_config_env_var_name as tracker_config_env_var_name
from torchx_specs.trackers.api import Lineage as Lineage
from torchx_specs.trackers.api import TrackerArtifact as TrackerArtifact
from torchx_specs.trackers.api import TrackerBase as TrackerBase
from torchx_specs.trackers.api import TrackerSource as TrackerSource
from torchx_tracker.api import AppRun as AppRun
from torchx_tracker.api import AppRunTrackableSource as AppRunTrackableSource
from torchx_tracker.api import app_run_from_env as app_run_from_env
from torchx_tracker.trackers import build_trackers as build_trackers
from torchx_tracker.trackers import trackers_from_environ as trackers_from_environ
