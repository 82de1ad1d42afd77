"""The command ``torchx conformance``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from torchx_specs.errors import RequestError

if TYPE_CHECKING:
    from torchx_testing.site.settings import SiteSettings

#: The exit code if a test failed.
TESTS_FAILED = 1


@click.command("conformance")
@click.option("-s", "--scheduler", metavar="NAME", help="Test this scheduler.")
@click.option("--tracker", metavar="NAME", help="Test this tracker; --config is required.")
@click.option("--workspace", metavar="NAME", help="Test this workspace builder.")
@click.option("--distribution", metavar="NAME", help="Test the plugins of this distribution.")
@click.option(
    "-cfg",
    "--cfg",
    "cfg_texts",
    metavar="KEY=VALUE,...",
    multiple=True,
    help="Set options of the scheduler for each job, in addition to .torchxconfig, or of the"
    " workspace builder.",
)
@click.option(
    "--pending-cfg",
    "pending_texts",
    metavar="KEY=VALUE,...",
    multiple=True,
    help="Set options with which a job stays pending, such as a closed queue.",
)
@click.option(
    "--unsupported",
    "declared",
    metavar="FEATURE=REASON",
    multiple=True,
    help="Skip the tests of a feature that your site lacks; may be repeated.",
)
@click.option(
    "--config",
    "tracker_config",
    default="",
    help="Configure the tracker; {test} in this text becomes a new name in each test.",
)
@click.option(
    "--image",
    default="",
    help="Run the jobs in this image, which needs sh and base64, or build workspaces on it.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="Limit the time of each job, in seconds.",
)
@click.option(
    "-k", "select", metavar="EXPRESSION", default="", help="Select tests, as pytest does."
)
@click.option("-x", "--exitfirst", is_flag=True, help="Stop after the first failed test.")
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.json, index.html and badge.svg to this directory.",
)
def command(
    scheduler: str | None,
    tracker: str | None,
    workspace: str | None,
    distribution: str | None,
    cfg_texts: tuple[str, ...],
    pending_texts: tuple[str, ...],
    declared: tuple[str, ...],
    tracker_config: str,
    image: str,
    timeout: float,
    select: str,
    exitfirst: bool,
    report: Path | None,
) -> None:
    """Run the conformance tests of torchx-testing on your site.

    The tests of a scheduler submit about a hundred small jobs, and delete them. The tests of a
    tracker leave their runs in its store. The exit code is 1 if a test fails. The report has no
    secrets: values of options and variables with names such as `token` are masked.
    """
    from torchx_testing.site import subjects
    from torchx_testing.site.report import summary_text, write_report
    from torchx_testing.site.results import ResultCollector

    names = {
        "scheduler": scheduler,
        "tracker": tracker,
        "workspace": workspace,
        "distribution": distribution,
    }
    # An option on the command line takes precedence over other options in [cli:conformance].
    source = click.get_current_context().get_parameter_source
    chosen = [kind for kind, name in names.items() if name]
    typed = [kind for kind in chosen if source(kind) is ParameterSource.COMMANDLINE]
    if len(typed or chosen) != 1:
        raise click.UsageError("give one of --scheduler, --tracker, --workspace, --distribution")
    [kind] = typed or chosen
    name = names[kind] or ""
    if kind == "scheduler":
        site = subjects.scheduler(name, cfg_texts, pending_texts, declared, image, timeout)
    elif kind == "tracker":
        site = subjects.tracker(name, tracker_config, declared)
    elif kind == "workspace":
        site = subjects.workspace(name, cfg_texts, declared, image)
    else:
        site = subjects.distribution(name, declared)
    collector = ResultCollector(kind, name, site.masked, site.masked_cfg())
    _run_pytest(site, collector, select, exitfirst)
    data = collector.data()
    if not data["tests"]:
        raise RequestError(f"no test was run; -k is '{select}'")
    if report is not None:
        try:
            write_report(report, data)
        except OSError as e:
            raise RequestError(f"--report {report}: {e.strerror or e}") from None
        click.echo(f"wrote {report / 'index.html'}")
    click.echo(f"{name}: {summary_text(data)}")
    if data["summary"]["failed"]:
        raise click.exceptions.Exit(TESTS_FAILED)


def _run_pytest(site: SiteSettings, collector: object, select: str, exitfirst: bool) -> None:
    """Run the suite in this process.

    Args:
        site: The settings of the tests.
        collector: The pytest plugin that gets the results.
        select: The expression of pytest's ``-k``.
        exitfirst: Whether to stop after the first failed test.

    Raises:
        KeyboardInterrupt: The user has pressed Ctrl-C; the jobs of the last test are deleted.
        RequestError: pytest refuses its arguments, such as the expression of ``-k``.
    """
    from unittest import mock

    import pytest

    from torchx_testing.site import settings

    module = f"torchx_testing.site.{site.kind}_tests"
    with tempfile.TemporaryDirectory() as folder:
        # pytest must not read the user's pytest.ini, or a conftest.py in the working directory.
        arguments = ["--pyargs", module, "-q", "-c", os.devnull]
        arguments += ["--rootdir", folder, "--basetemp", os.path.join(folder, "tmp")]
        arguments += ["-p", "no:cacheprovider", "-k", select, *(["-x"] if exitfirst else [])]
        # pytest cannot rewrite the assertions of modules that are already imported, and warns. The
        # imported modules of this command contain no assertions.
        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        settings.current = site
        # The module reads the settings when it is imported.
        sys.modules.pop(module, None)
        arguments += ["-p", "torchx_testing.plugin"]
        # Other plugins of pytest could change the tests, and their imports take seconds.
        with mock.patch.dict(os.environ, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}):
            os.environ.pop("PYTEST_ADDOPTS", None)
            code = pytest.main(arguments, plugins=[collector])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
        raise RequestError(f"pytest ended with {pytest.ExitCode(code).name}; -k is '{select}'")
