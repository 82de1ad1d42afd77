"""A base for tests of components, ours and those that users write.

::

    import my_components
    from torchx_components.component_test_base import ComponentTestCase

    class MyComponentsTest(ComponentTestCase):
        def test_trainer(self) -> None:
            self.validate(my_components, "trainer")
"""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import tempfile
import time
import unittest
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import ComponentNotFoundException, ComponentValidationException

if TYPE_CHECKING:
    import torchx_specs as specs


class ComponentTestCase(unittest.TestCase):
    """Checks components.

    Attributes:
        test_dir: A folder for this test, removed after it.
        old_cwd: The working directory at its start, gone back to after it.
    """

    def setUp(self) -> None:
        self.test_dir = tempfile.mkdtemp("torchx_component_test")
        self.old_cwd = os.getcwd()

    def tearDown(self) -> None:
        os.chdir(self.old_cwd)
        shutil.rmtree(self.test_dir)

    def validate(self, module: ModuleType, function_name: str) -> None:
        """Checks that a function can be run as a component, and shown by ``--help``.

        Args:
            module: The module that defines it.
            function_name: Its name.

        Raises:
            ComponentNotFoundException: The module has no such function.
            ComponentValidationException: It breaks the rules for components; all that is wrong is
                in the text.
            ComponentTypeError: No command line can fill its parameters.
        """
        from torchx_specs import file_linter
        from torchx_specs.components import component_help

        function = getattr(module, function_name, None)
        if not callable(function):
            raise ComponentNotFoundException(
                f"Function {function_name} does not exist in {module.__file__ or module.__name__}"
            )
        # Where it is defined, which need not be the module it was asked from (torchx.components).
        path = inspect.getsourcefile(inspect.unwrap(function)) or module.__name__
        problems = file_linter.validate(path, function_name)
        if problems:
            listed = "; ".join(f"line {one.line}: {one.description}" for one in problems)
            raise ComponentValidationException(
                f"Component {path}:{function_name} has validation errors: {listed}"
            )
        component_help(function)

    def run_component(
        self,
        component: Callable[..., specs.AppDef],
        args: Mapping[str, Any] | None = None,
        scheduler_params: Mapping[str, Any] | None = None,
        scheduler: str = "local_cwd",
        interval: float = 0.1,
        timeout: float = 1,
    ) -> specs.AppStatus | None:
        """Runs a component until its job ends; needs torchx-runner and the scheduler installed.

        Args:
            component: The component.
            args: Its arguments, by name.
            scheduler_params: For the scheduler's factory.
            scheduler: Name of the scheduler.
            interval: Seconds between two looks at the job.
            timeout: Seconds to wait for its end.

        Returns:
            The last status that was seen: the job may still be running when the time is over, and
            is ended then. None if the scheduler does not know the job.
        """
        # By name, as components stand below the runner and must not need it.
        runner_api = importlib.import_module("torchx_runner")
        app = component(**(args or {}))
        with runner_api.get_runner(**(scheduler_params or {})) as runner:
            handle = runner.run(app, scheduler)
            deadline = time.monotonic() + timeout
            status: specs.AppStatus | None = runner.status(handle)
            while status and not status.is_terminal() and time.monotonic() < deadline:
                time.sleep(interval)
                status = runner.status(handle)
            if status and not status.is_terminal():
                runner.cancel(handle)
            return status
