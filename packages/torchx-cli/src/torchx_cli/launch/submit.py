"""Submits a request of ``torchx run`` or ``torchx rerun``, and waits for the app if necessary."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from torchx_cli.exit_codes import JOB_FAILED, Terminated, fail
from torchx_cli.output.app_data import (
    dryrun_data,
    dryrun_document,
    dryrun_text,
    is_document,
    read_document,
    warn_of_secrets,
)
from torchx_cli.output.printing import TABLE, YAML, run_data, write, write_data
from torchx_cli.output.terminal import write_utf8
from torchx_specs.components.materialize import component_error_location
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.errors import ComponentError, RequestError, TorchXError, one_line
from torchx_specs.model.status import AppState, AppStatus

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.factories import Deliveries
    from torchx_specs.workspace.spec import Workspace

logger = logging.getLogger(__name__)


class RunRequest(NamedTuple):
    """The values of a command's options and arguments, resolved and checked.

    Attributes:
        component: The component, or a file that defines an app.
        arguments: The arguments of the component.
        scheduler: Name of the scheduler.
        cfg: The options of the scheduler.
        workspace: Replaces the workspace of the first role; None keeps that workspace.
        parent_run_id: The id of the parent run.
        dryrun: Whether to show the request without submitting it.
        wait: Whether to wait for the end of the app.
        log: Whether to show the logs, and wait for the end of the app.
        detach: Whether to return at once, also if the app is local.
        output_format: ``table``, ``json`` or ``yaml``.
        app: The app to submit instead of a component; ``component`` is then its name in errors.
        name: The name of the app; None keeps the name.
        env: Variables that are set in every role.
        deliveries: Sends the notification at the end of the app; None sends none.
    """

    component: str
    arguments: list[str] | dict[str, Any]
    scheduler: str
    cfg: dict[str, CfgVal]
    workspace: Workspace | str | None
    parent_run_id: str | None
    dryrun: bool
    wait: bool
    log: bool
    detach: bool
    output_format: str
    app: AppDef | None = None
    name: str | None = None
    env: Mapping[str, str] = MappingProxyType({})
    deliveries: Deliveries | None = None


@contextmanager
def component_errors(component: str) -> Iterator[None]:
    """Raise ComponentError for an exception in a component; on ``--help``, print the help and exit.

    Args:
        component: The component's name on the command line.

    Raises:
        ComponentError: The component raised an exception that is not a TorchXError.
    """
    try:
        yield
    except ComponentHelpRequested as e:
        from torchx_specs.components.help import component_help

        write(component_help(e.component, prog=f"torchx run {component}"))
        fail(0)
    except TorchXError:
        raise
    except Exception as e:
        location = component_error_location(e)
        if location is None:
            raise
        raise ComponentError(
            f"component {component} failed: {type(e).__name__}: {one_line(e)} ({location})"
        ) from e


def submit(runner: Runner, request: RunRequest, no_wait: bool) -> None:
    """Submit a request, or show its dry run, and print the result.

    Args:
        runner: The runner.
        request: The request.
        no_wait: Whether the user gave ``--no-wait``.
    """
    app = request.app
    if app is None and is_document(request.component):
        if request.arguments:
            raise RequestError(
                f"{request.component} is a file that defines an app, and takes no arguments"
            )
        app = read_document(request.component)
    if request.detach and runner.scheduler_run_opts(request.scheduler).get("detach"):
        request.cfg["detach"] = True
    with component_errors(request.component):
        if request.name or request.env or request.dryrun:
            app = _made_app(runner, request, app)
            if request.dryrun:
                _dryrun(runner, request, app)
                return
    # A dry run needs none of these.
    from torchx_cli.output.progress import shown_progress
    from torchx_kit.jobs.submission import submission

    with _signals_interrupt(), submission() as current:
        target = (request.scheduler, request.cfg, request.workspace, request.parent_run_id)
        # Only the handle is printed on standard output.
        with (
            component_errors(request.component),
            redirect_stdout(sys.stderr),
            shown_progress(request.output_format),
        ):
            if app is not None:
                handle = str(runner.run(app, *target))
            else:
                handle = runner.run_component(request.component, request.arguments, *target)
        if request.output_format == TABLE:
            print(handle, flush=True)
        logger.info("launched app: %s", handle)
        current.handle = ""  # after an interrupt, the handle need not be printed again
        _finish(runner, request, handle, no_wait)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise :class:`Terminated` in the main thread.

    A signal that is ignored, as ``nohup`` does with SIGHUP, stays so.
    """

    def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated()

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, raise_terminated)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _made_app(runner: Runner, request: RunRequest, app: AppDef | None) -> AppDef:
    """Return the app of a request, with the requested name and environment variables."""
    if app is None:
        with redirect_stdout(sys.stderr):
            app = runner.materialize(request.component, request.arguments)
    if request.name:
        app.name = request.name
    for role in app.roles:
        role.env = {**role.env, **request.env}
    return app


def _dryrun(runner: Runner, request: RunRequest, app: AppDef) -> None:
    with redirect_stdout(sys.stderr):
        info = runner.dryrun(
            app, request.scheduler, request.cfg, request.workspace, request.parent_run_id
        )
    if request.output_format == TABLE:
        write(dryrun_text(info))
    elif request.output_format == YAML:
        write_utf8(dryrun_document(app, info, request.workspace))
        warn_of_secrets(asdict(app))
    else:
        data = dryrun_data(info)
        write_data(data, request.output_format)
        warn_of_secrets(data)


def _finish(runner: Runner, request: RunRequest, handle: str, no_wait: bool) -> None:
    """Wait for the end of a submitted app if necessary, and print its data as JSON or YAML.

    The command waits if the request says so, or if the app would end with the command.

    Args:
        runner: The runner that submitted the app.
        request: The request.
        handle: The app.
        no_wait: Whether the user gave ``--no-wait``.
    """
    owned = not request.detach and runner.lives_in_client(request.scheduler, request.cfg)
    if owned and no_wait:
        logger.warning(
            "--no-wait: an app of scheduler %s ends with this command, which waits for it;"
            " --detach lets both continue",
            request.scheduler,
        )
    waits = request.wait or request.log or owned
    status = (
        _attend(runner, request, handle, owned) if waits else _first_status(runner, request, handle)
    )
    if request.output_format != TABLE:
        write_data(run_data(handle, status), request.output_format)
    if waits and status is not None and status.state != AppState.SUCCEEDED:
        from torchx_cli.launch.reports import show_failure

        show_failure(runner, handle, status, are_logs_shown=request.log or owned)
        fail(JOB_FAILED)


def _attend(runner: Runner, request: RunRequest, handle: str, owned: bool) -> AppStatus:
    from torchx_cli.launch.foreground import follow_in_foreground
    from torchx_cli.launch.reports import log_end

    logger.info("waiting for the app to finish")
    status = follow_in_foreground(runner, handle, show_logs=request.log or owned, owned=owned)
    log_end(status)
    if request.deliveries is not None:
        from torchx_cli.notifications import job_ended

        request.deliveries.send(job_ended(handle, status))
        request.deliveries.finish()
    return status


def _first_status(runner: Runner, request: RunRequest, handle: str) -> AppStatus | None:
    """Return the status of a submitted app, or None if it is not needed or not available."""
    is_detached = request.detach or request.cfg.get("detach") is True
    if is_detached and request.output_format == TABLE:
        return None
    try:
        status = runner.status(handle)
    except Exception as e:  # the app was submitted; only its status is unknown
        logger.warning("the status of the app is not available yet: %s", e)
        return None
    if status is not None:
        from torchx_cli.output.status_text import summary  # slow, and not needed while waiting

        logger.info("%s", summary(status))
        if status.ui_url:
            logger.info("UI URL: %s", status.ui_url)
    return status
