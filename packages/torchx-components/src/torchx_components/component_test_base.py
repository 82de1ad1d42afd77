"""Base class for tests of components, both built-in components and your own.

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
import unittest
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import ComponentNotFoundException, ComponentValidationException

if TYPE_CHECKING:
    import torchx_specs as specs


class ComponentTestCase(unittest.TestCase):
    """A test case that checks and runs components.

    Attributes:
        test_dir: A temporary directory, removed after the test.
        old_cwd: The working directory before the test, restored after it.
    """

    def setUp(self) -> None:
        """Create the temporary directory."""
        self.test_dir = tempfile.mkdtemp("torchx_component_test")
        self.old_cwd = os.getcwd()

    def tearDown(self) -> None:
        """Restore the working directory and remove the temporary directory."""
        os.chdir(self.old_cwd)
        shutil.rmtree(self.test_dir)

    def validate(self, module: ModuleType, function_name: str) -> None:
        """Check that a function can be run as a component and that ``--help`` can describe it.

        Args:
            module: The module that defines the function.
            function_name: Name of the function.

        Raises:
            ComponentNotFoundException: The module has no such function.
            ComponentValidationException: The function breaks the rules for components; the error
                lists every violation.
            ComponentTypeError: An annotation of the function cannot be resolved.
        """
        from torchx_specs import file_linter
        from torchx_specs.components.help import component_help

        function = getattr(module, function_name, None)
        if not callable(function):
            raise ComponentNotFoundException(
                f"Function {function_name} does not exist in {module.__file__ or module.__name__}"
            )
        # `module` may only import the function, for example torchx.components.
        path = inspect.getsourcefile(inspect.unwrap(function)) or module.__name__
        problems = file_linter.validate(path, function_name)
        if problems:
            listed = "; ".join(
                f"line {problem.line}: {problem.description}" for problem in problems
            )
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
        """Run a component until its job ends.

        The runner and the scheduler must be installed.

        Args:
            component: The component.
            args: Arguments of the component, by name.
            scheduler_params: Keyword arguments of ``get_runner``, for the schedulers' factories.
            scheduler: Name of the scheduler.
            interval: The longest time between two polls of the job, in seconds.
            timeout: Cancel the job after this time, in seconds.

        Returns:
            The last status, or None if the scheduler does not know the job. The state of a job that
            was cancelled after the timeout may still be RUNNING.
        """
        # Import the runner only here, because this distribution does not depend on it.
        runner_api = importlib.import_module("torchx_runner")
        app = component(**(args or {}))
        with runner_api.get_runner(**(scheduler_params or {})) as runner:
            handle = runner.run(app, scheduler)
            try:
                status: specs.AppStatus | None = runner.wait(handle, interval, timeout=timeout)
            except runner_api.WaitTimeoutError as e:
                runner.cancel(handle)
                return e.status  # type: ignore[no-any-return]
            return status
