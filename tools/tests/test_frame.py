from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import bootstrap
import check_docs
import check_imports
import distributions
import environments
import import_all
import summary

# By its path: pytest calls the folder packages/ by the name of this script.
_spec = importlib.util.spec_from_file_location("stamping", distributions.ROOT / "tools/packages.py")
assert _spec is not None
assert _spec.loader is not None
stamping = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stamping)

TOOLS = Path(distributions.__file__).resolve().parent


def test_siblings_are_pinned_to_the_one_version_and_absent_ones_left_out() -> None:
    lines = stamping.requirements(
        ("torchx-specs", "torchx-sched-aws", "click>=8.1"), {"torchx-specs"}
    )
    assert lines == [f"torchx-specs=={distributions.version()}", "click>=8.1"]


def test_a_distribution_needs_only_what_stands_below_it() -> None:
    for distribution in distributions.DISTRIBUTIONS:
        for name in distribution.ours:
            assert distributions.BY_NAME[name].floor < distribution.floor, (distribution.name, name)


def test_the_environment_for_tests_has_what_any_test_needs() -> None:
    listed = (TOOLS / "requirements" / "test.txt").read_text("utf-8").splitlines()
    for member in distributions.members():
        of_others = {need for other in distributions.members() for need in other.others}
        missing = set(member.test) - of_others - set(listed)
        assert not missing, (member.name, missing)


def test_a_stamped_project_file_says_what_its_row_says() -> None:
    text = stamping.render(distributions.BY_NAME["torchx-cli"], set(distributions.BY_NAME))
    assert 'torchx = "torchx_cli.main:main"' in text
    assert 'cli = "torchx_cli.plugin"' in text
    assert f'"torchx-runner=={distributions.version()}"' in text


def test_undeclared_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("import os\n\ndef f():\n    from boto3.session import Session\n", "utf-8")
    assert list(check_imports.imports(source)) == [(1, "os"), (4, "boto3")]
    assert "boto3" not in check_imports.allowed(distributions.BY_NAME["torchx-sched-slurm"])
    assert "boto3" in check_imports.allowed(distributions.BY_NAME["torchx-sched-aws"])
    assert "torchx_runner" not in check_imports.allowed(distributions.BY_NAME["torchx-tracker"])


def test_every_module_is_imported_and_a_missing_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "frame_sample"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit('a program')", "utf-8")
    (package / "good.py").touch()
    (package / "lacking.py").write_text("import no_such_library.part", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    text = import_all.main("frame_sample", str(tmp_path), ["no_such_library"])
    assert text == "imported 2 modules, without frame_sample.lacking (needs no_such_library)"
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        import_all.main("frame_sample", str(tmp_path), [])
    with pytest.raises(SystemExit, match="comes from"):
        import_all.main("frame_sample", "/elsewhere", [])


def test_the_summary_adds_up_tests_and_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = '<testcase classname="a.b" name="c"><failure message="x &lt;\n y"/></testcase>'
    suite = f'<testsuite tests="5" failures="1" errors="0" skipped="2">{case}</testsuite>'
    (tmp_path / "a.xml").write_text(f"<testsuites>{suite}</testsuites>", "utf-8")
    sessions = [
        {"signatures": ["lint"], "result": "success"},
        {"signatures": ["types"], "result": "failed"},
    ]
    for number, session in enumerate(sessions):
        report = json.dumps({"sessions": [session]})
        (tmp_path / f"nox-{number}.json").write_text(report, "utf-8")
    assert summary.main(tmp_path, 1) == 1
    out = capsys.readouterr().out.splitlines()
    assert "FAILED a.b::c: x < y" in out
    assert out[-1] == "3 passed, 2 failed, 2 skipped"


def test_a_run_that_stopped_early_counts_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summary.main(tmp_path, 2) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_broken_links_and_anchors_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](page.md) [b](gone.md) [c](#one-two) [d](#three) [e](https://x.test/)\n"
        "```md\n[f](in-code.md)\n```\n",
        "utf-8",
    )
    assert list(check_docs.broken_links(page)) == [
        "link to gone.md: no such file",
        "link to #three: no such heading",
    ]


def test_a_failing_example_is_told_by_its_last_line() -> None:
    assert check_docs.run_python("print(1)") == ""
    assert check_docs.run_python("1 / 0") == "ZeroDivisionError: division by zero"


def test_an_interpreter_that_does_not_start_is_none(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    broken.chmod(0o755)
    assert environments.version_of(broken) is None
    assert environments.version_of(tmp_path / "gone") is None
    assert environments.version_of(sys.executable) == "{}.{}".format(*sys.version_info)
    assert environments.interpreter("3.99") is None


def test_without_ensurepip_the_bootstrap_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError", "utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import bootstrap, pathlib\n"
        f"bootstrap.ENVIRONMENT = pathlib.Path({str(tmp_path / 'env')!r})\n"
        "install = bootstrap.install\n"
        "bootstrap.install = lambda level: install(level, bootstrap.ENVIRONMENT)\n"
        "sys.exit(bootstrap.main(['demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("bootstrap: ")
    assert "python3-venv" in line


def test_without_its_index_pip_is_not_taken_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        python = environments.python_in(tmp_path)
        python.parent.mkdir()
        python.symlink_to(sys.executable)
        words = ["install", "--target", str(tmp_path / "to"), "no-such-package"]
        with pytest.raises(environments.EnvironmentFailure) as failure:
            environments.pip(tmp_path, words, show=bootstrap.show_pip)
    assert str(failure.value).startswith("pip cannot reach its package index: Connection refused")
    assert "no package index (Connection refused), trying again" in capsys.readouterr().out


def test_the_bootstrap_answers_an_unknown_command_with_its_usage() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOLS / "bootstrap.py"), "dmeo"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    first, usage = done.stderr.splitlines()[:2]
    assert first == "bootstrap: there is no command 'dmeo'"
    assert usage.startswith("usage: python3 tools/bootstrap.py COMMAND")
