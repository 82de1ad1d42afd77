# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_components.component_test_base import ComponentTestCase as ComponentTestCase
from torchx_runner.api import get_runner as get_runner
from torchx_runner.finder import get_component as get_component
from torchx_specs.app import AppDef as AppDef
from torchx_specs.status import AppStatus as AppStatus
