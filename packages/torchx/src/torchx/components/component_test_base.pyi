# Type stub: the names of the module beside it.
from torchx_components.component_test_base import ComponentTestCase as ComponentTestCase
from torchx_runner.api import get_runner as get_runner
from torchx_runner.components.finder import get_component as get_component
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.status import AppStatus as AppStatus
