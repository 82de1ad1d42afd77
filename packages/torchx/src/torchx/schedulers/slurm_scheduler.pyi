# Type stub: the names of the module beside it.
from typing import Any
from torchx_kit.workspace.dir_builder import DirWorkspaceMixin as DirWorkspaceMixin
from torchx_sched_local.logs.iterator import LogIterator as LogIterator
from torchx_sched_slurm.job_files.job_dirs import SLURM_JOB_DIRS as SLURM_JOB_DIRS
from torchx_sched_slurm.options import SBATCH_GROUP_OPTIONS as SBATCH_GROUP_OPTIONS
from torchx_sched_slurm.options import SBATCH_JOB_OPTIONS as SBATCH_JOB_OPTIONS
from torchx_sched_slurm.options import SlurmOpts as SlurmOpts
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.scheduler import SlurmScheduler as SlurmScheduler
from torchx_sched_slurm.scheduler import create_scheduler as create_scheduler
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import Role as Role
from torchx_specs.model.constants import NONE as NONE
from torchx_specs.model.app import AppDryRunInfo as AppDryRunInfo
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.model.status import AppState as AppState
from torchx_specs.model.status import ReplicaStatus as ReplicaStatus
from torchx_specs.model.status import RoleStatus as RoleStatus
from torchx_specs.model.templates import macros as macros
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.options.structured import StructuredOpts as StructuredOpts
from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
from torchx_specs.schedulers.api import Scheduler as Scheduler
from torchx_specs.schedulers.api import Stream as Stream
from torchx_kit.logs.lines import filter_regex as filter_regex
from torchx_kit.logs.lines import split_lines_iterator as split_lines_iterator
from torchx._legacy_slurm import get_appstate_from_job as get_appstate_from_job
from torchx._legacy_slurm import version as version
from torchx._legacy_workspace import MultiWorkspaceMixin as MultiWorkspaceMixin
from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
from torchx_workspace_docker.docker_workspace import DockerWorkspaceMixin as DockerWorkspaceMixin

PIPE: Any
