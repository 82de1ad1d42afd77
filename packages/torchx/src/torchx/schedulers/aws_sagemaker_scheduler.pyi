# Type stub: the names of the module beside it.
from torchx_components.structured_arg import StructuredNameArgument as StructuredNameArgument
from torchx_kit.names.ids import make_unique as make_unique
from torchx_sched_aws.sagemaker.options import AWSSageMakerOpts as AWSSageMakerOpts
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob as AWSSageMakerJob
from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler as AWSSageMakerScheduler
from torchx_sched_aws.sagemaker.scheduler import create_scheduler as create_scheduler
from torchx_sched_aws.sagemaker.states import JOB_STATE as JOB_STATE
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import AppDryRunInfo as AppDryRunInfo
from torchx_specs.model.status import AppState as AppState
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
from torchx_specs.schedulers.api import Scheduler as Scheduler
from torchx_specs.schedulers.api import Stream as Stream
from torchx_workspace_docker.docker_workspace import DockerWorkspaceMixin as DockerWorkspaceMixin
