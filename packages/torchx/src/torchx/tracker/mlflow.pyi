# Type stub: the names of the module beside it.
from torchx._legacy_tracker import TAG_ARTIFACT_MD_PREFIX as TAG_ARTIFACT_MD_PREFIX
from torchx_apps.distributed import on_rank0_first as on_rank0_first
from torchx_runner.config.api import get_configs as get_configs
from torchx_specs.settings import ENV_TORCHX_JOB_ID as ENV_TORCHX_JOB_ID
from torchx_specs.trackers.api import Lineage as Lineage
from torchx_specs.trackers.api import TrackerArtifact as TrackerArtifact
from torchx_specs.trackers.api import TrackerBase as TrackerBase
from torchx_specs.trackers.api import TrackerSource as TrackerSource
from torchx_tracker_mlflow.tracker import MLflowTracker as MLflowTracker
from torchx_tracker_mlflow.tracker import create_tracker as create_tracker
