"""The command ``torchx conformance``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from torchx_specs.errors import RequestError

#: The exit code if a test failed.
TESTS_FAILED = 1


@click.command("conformance")
@click.option("-s", "--scheduler", metavar="NAME", required=True, help="Test this scheduler.")
@click.option(
    "-cfg",
    "--cfg",
    "cfg_texts",
    metavar="KEY=VALUE,...",
    multiple=True,
    help="Set options of the scheduler for each job, in addition to .torchxconfig.",
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
@click.option("--image", default="", help="Run the jobs in this image, which needs sh and base64.")
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
    scheduler: str,
    cfg_texts: tuple[str, ...],
    pending_texts: tuple[str, ...],
    declared: tuple[str, ...],
    image: str,
    timeout: float,
    select: str,
    exitfirst: bool,
    report: Path | None,
) -> None:
    """Run the conformance tests of schedulers on your site.

    The tests submit about a hundred small jobs, and delete them. The exit code is 1 if a test
    fails. The report has no secrets: values of options and variables with names such as `token`
    are masked.
    """
    from torchx_specs.redaction import masked
    from torchx_testing.site import settings
    from torchx_testing.site.report import summary_text, write_report
    from torchx_testing.site.results import ResultCollector

    site = settings.settings_of(scheduler, cfg_texts, pending_texts, declared, image, timeout)
    settings.current = site
    collector = ResultCollector("scheduler", scheduler, site.masked, masked(site.cfg))
    _run_pytest(collector, select, exitfirst)
    data = collector.data()
    if not data["tests"]:
        raise RequestError(f"no test was run; -k is '{select}'")
    if report is not None:
        try:
            write_report(report, data)
        except OSError as e:
            raise RequestError(f"--report {report}: {e.strerror or e}") from None
        click.echo(f"wrote {report / 'index.html'}")
    click.echo(f"{scheduler}: {summary_text(data)}")
    if data["summary"]["failed"]:
        raise click.exceptions.Exit(TESTS_FAILED)


def _run_pytest(collector: object, select: str, exitfirst: bool) -> None:
    """Run the suite in this process.

    Args:
        collector: The pytest plugin that gets the results.
        select: The expression of pytest's ``-k``.
        exitfirst: Whether to stop after the first failed test.

    Raises:
        KeyboardInterrupt: The user has pressed Ctrl-C; the jobs of the last test are deleted.
        RequestError: pytest refuses its arguments, such as the expression of ``-k``.
    """
    from unittest import mock

    import pytest

    module = "torchx_testing.site.scheduler_tests"
    with tempfile.TemporaryDirectory() as folder:
        # pytest must not read the user's pytest.ini, or a conftest.py in the working directory.
        arguments = ["--pyargs", module, "-q", "-c", os.devnull]
        arguments += ["--rootdir", folder, "--basetemp", os.path.join(folder, "tmp")]
        arguments += ["-p", "no:cacheprovider", "-k", select, *(["-x"] if exitfirst else [])]
        # pytest cannot rewrite the assertions of modules that are already imported, and warns. The
        # imported modules of this command contain no assertions.
        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
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
