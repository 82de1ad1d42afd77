"""Core types for defining distributed applications.

The main types are :class:`AppDef`, :class:`Role` and :class:`Resource`. Components are functions
that return an AppDef, which a scheduler then launches.

Importing this package is cheap: each name loads its module when it is first used.
"""

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.components.materialize import ComponentArgs as ComponentArgs
    from torchx_specs.components.materialize import (
        component_args_from_str as component_args_from_str,
    )
    from torchx_specs.components.materialize import materialize_appdef as materialize_appdef
    from torchx_specs.errors import BackendError as BackendError
    from torchx_specs.errors import ComponentArgumentError as ComponentArgumentError
    from torchx_specs.errors import ComponentError as ComponentError
    from torchx_specs.errors import ComponentNotFoundException as ComponentNotFoundException
    from torchx_specs.errors import ComponentTypeError as ComponentTypeError
    from torchx_specs.errors import ComponentValidationException as ComponentValidationException
    from torchx_specs.errors import ConfigError as ConfigError
    from torchx_specs.errors import InvalidRunConfigException as InvalidRunConfigException
    from torchx_specs.errors import MalformedAppHandleException as MalformedAppHandleException
    from torchx_specs.errors import NamedResourceNotFoundError as NamedResourceNotFoundError
    from torchx_specs.errors import PluginError as PluginError
    from torchx_specs.errors import RequestError as RequestError
    from torchx_specs.errors import SerializationError as SerializationError
    from torchx_specs.errors import TorchXError as TorchXError
    from torchx_specs.errors import TrackerError as TrackerError
    from torchx_specs.errors import UnknownAppException as UnknownAppException
    from torchx_specs.errors import UnknownSchedulerException as UnknownSchedulerException
    from torchx_specs.errors import WorkspaceError as WorkspaceError
    from torchx_specs.model.app import AppDef as AppDef
    from torchx_specs.model.app import AppDryRunInfo as AppDryRunInfo
    from torchx_specs.model.app import RetryPolicy as RetryPolicy
    from torchx_specs.model.app import Role as Role
    from torchx_specs.model.constants import ALL as ALL
    from torchx_specs.model.constants import MISSING as MISSING
    from torchx_specs.model.constants import NA as NA
    from torchx_specs.model.constants import NONE as NONE
    from torchx_specs.model.constants import TORCHX_CONTEXT_NAME as TORCHX_CONTEXT_NAME
    from torchx_specs.model.constants import UNKNOWN as UNKNOWN
    from torchx_specs.model.constants import GiB as GiB
    from torchx_specs.model.constants import app_metadata as app_metadata
    from torchx_specs.model.handles import AppHandle as AppHandle
    from torchx_specs.model.handles import ParsedAppHandle as ParsedAppHandle
    from torchx_specs.model.handles import make_app_handle as make_app_handle
    from torchx_specs.model.handles import parse_app_handle as parse_app_handle
    from torchx_specs.model.mounts import BindMount as BindMount
    from torchx_specs.model.mounts import DeviceMount as DeviceMount
    from torchx_specs.model.mounts import MountType as MountType
    from torchx_specs.model.mounts import VolumeMount as VolumeMount
    from torchx_specs.model.mounts import parse_mounts as parse_mounts
    from torchx_specs.model.resources import NULL_RESOURCE as NULL_RESOURCE
    from torchx_specs.model.resources import Resource as Resource
    from torchx_specs.model.secrets import SecretRef as SecretRef
    from torchx_specs.model.secrets import parse_secret as parse_secret
    from torchx_specs.model.secrets import secret as secret
    from torchx_specs.model.status import AppState as AppState
    from torchx_specs.model.status import AppStatus as AppStatus
    from torchx_specs.model.status import AppStatusError as AppStatusError
    from torchx_specs.model.status import ReplicaState as ReplicaState
    from torchx_specs.model.status import ReplicaStatus as ReplicaStatus
    from torchx_specs.model.status import RoleStatus as RoleStatus
    from torchx_specs.model.status import is_started as is_started
    from torchx_specs.model.status import is_terminal as is_terminal
    from torchx_specs.model.templates import macros as macros
    from torchx_specs.options.run_options import CfgVal as CfgVal
    from torchx_specs.options.run_options import runopt as runopt
    from torchx_specs.options.run_options import runopts as runopts
    from torchx_specs.options.structured import StructuredOpts as StructuredOpts
    from torchx_specs.resources.capabilities import CapabilityKey as CapabilityKey
    from torchx_specs.resources.registry import ResourceFactory as ResourceFactory
    from torchx_specs.resources.registry import (
        _named_resource_factories as _named_resource_factories,
    )
    from torchx_specs.resources.registry import get_named_resources as get_named_resources
    from torchx_specs.resources.registry import named_resources as named_resources
    from torchx_specs.resources.registry import resource as resource
    from torchx_specs.version import __version__ as __version__
    from torchx_specs.workspace.spec import Workspace as Workspace

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".components.materialize": "ComponentArgs component_args_from_str materialize_appdef",
        ".errors": (
            "BackendError ComponentArgumentError ComponentError"
            " ComponentNotFoundException ComponentTypeError ComponentValidationException"
            " ConfigError InvalidRunConfigException MalformedAppHandleException"
            " NamedResourceNotFoundError PluginError RequestError SerializationError TorchXError"
            " TrackerError UnknownAppException UnknownSchedulerException WorkspaceError"
        ),
        ".model.app": "AppDef AppDryRunInfo RetryPolicy Role",
        ".model.constants": "ALL GiB MISSING NA NONE TORCHX_CONTEXT_NAME UNKNOWN app_metadata",
        ".model.handles": "AppHandle ParsedAppHandle make_app_handle parse_app_handle",
        ".model.mounts": "BindMount DeviceMount MountType VolumeMount parse_mounts",
        ".model.resources": "NULL_RESOURCE Resource",
        ".model.secrets": "SecretRef parse_secret secret",
        ".model.status": (
            "AppState AppStatus AppStatusError ReplicaState ReplicaStatus RoleStatus is_started"
            " is_terminal"
        ),
        ".model.templates": "macros",
        ".options.run_options": "CfgVal runopt runopts",
        ".options.structured": "StructuredOpts",
        ".resources.capabilities": "CapabilityKey",
        ".resources.registry": (
            "ResourceFactory _named_resource_factories get_named_resources named_resources resource"
        ),
        ".version": "__version__",
        ".workspace.spec": "Workspace",
    },
    submodules=(
        "cases components errors file_linter formats hookspecs model named_resources_generic"
        " options overlays plugins resources schedulers settings trackers workspace"
    ),
)
