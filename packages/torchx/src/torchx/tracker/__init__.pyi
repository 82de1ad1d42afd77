# Type stub: the names of the module beside it.
from torchx.tracker import api as api
from torchx.tracker import backend as backend
from torchx.tracker import mlflow as mlflow
from torchx_tracker.api import AppRun as AppRun
from torchx_tracker.api import AppRunTrackableSource as AppRunTrackableSource
from torchx_tracker.api import app_run_from_env as app_run_from_env
