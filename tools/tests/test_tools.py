from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import aws_limits
import aws_resources
import check_docs
import check_projects
import import_all
import release
import summary
import workspace
from workspace import ROOT, Distribution, members, name_of

UPSTREAM = ROOT / "packages" / "torchx-resources-aws" / "tests" / "upstream_aws.json"


def test_bootstrap_without_a_command_prints_its_usage() -> None:
    command = [sys.executable, str(ROOT / "tools" / "bootstrap.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: python3 tools/bootstrap.py COMMAND")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the standard library has no tomllib")
def test_the_benchmarks_need_no_installed_package() -> None:
    command = [sys.executable, "-S", str(ROOT / "tools" / "bench" / "run.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sweep-status" in "".join(done.stdout.split())  # argparse breaks lines at hyphens


def test_the_image_for_jobs_has_every_dependency_of_ours() -> None:
    text = (ROOT / "images" / "Dockerfile").read_text("utf-8")
    copied = set(re.findall(r"^COPY packages/([\w-]+) ", text, re.M))
    # The Dockerfile installs `torchx` without its dependencies.
    projects = [member.project for member in members() if member.name in copied - {"torchx"}]
    required = {name_of(line) for one in projects for line in one["dependencies"]}
    assert {name for name in required if name.startswith("torchx-")} <= copied


def test_github_runs_every_service_and_session() -> None:
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text("utf-8")
    lists = re.findall(r"matrix:\n +(session|services):\n((?: +- .+\n)+)", workflow)
    found = {name: re.sub(r"^ +- ", "", text, flags=re.M).split() for name, text in lists}
    folders = {path.parent.name for path in ROOT.glob("integration/*/test_*.py")} - {"authors"}
    assert sorted(found["services"]) == sorted(folders)
    defined = re.findall(r"@nox.session.*\n(?:@.*\n)*def (\w+)", (ROOT / "noxfile.py").read_text())
    sessions = {name.partition("(")[0] for name in found["session"]} | {"integration"}
    # Other sessions run `wheels` and `release` first, and what `gate`, `imports` and `deep` run.
    # The benchmarks need an idle machine, and Debian's next Python needs a chroot.
    others = {"wheels", "release", "gate", "imports", "deep", "bench", "next_python"}
    assert sessions == set(defined) - others


def test_the_index_links_each_file_with_its_checksum(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name in ("torchx-1.0.tar.gz", "torchx_cli-1.0-py3-none-any.whl"):
        (tmp_path / "files" / name).write_text("")
    release.write_index(tmp_path)
    page = (tmp_path / "simple" / "torchx" / "index.html").read_text()
    assert '<a href="../../files/torchx-1.0.tar.gz#sha256=e3b0c44298fc' in page
    assert 'data-requires-python="&gt;=3.10">torchx-1.0.tar.gz</a>' in page
    assert "torchx_cli" not in page
    assert 'href="torchx-cli/"' in (tmp_path / "simple" / "index.html").read_text()


def test_a_build_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(source: Path, target: Path) -> list[Path]:
        target.mkdir()
        with tarfile.open(target / "a-1.tar.gz", "w:gz"):
            pass
        (target / "a-1.whl").write_text(target.name)
        return sorted(target.iterdir())

    monkeypatch.setattr(release, "build", build)
    with pytest.raises(SystemExit, match="is not reproducible"):
        release.build_twice(tmp_path, tmp_path)


def test_wrong_project_files_are_found() -> None:
    [specs] = [member for member in members() if member.name == "torchx-specs"]
    [runner] = [member for member in members() if member.name == "torchx-runner"]
    requirements = ["torchx-specs~=1.7", "torchx-cli==1.0.0", "torchx-sched-lsf"]
    wrong = {"dependencies": requirements, "version": "0.1"}
    other = Distribution(runner.folder, {**runner.config, "project": {**runner.project, **wrong}})
    current = workspace.version()
    assert not list(check_projects.metadata_problems(runner, specs))
    assert list(check_projects.metadata_problems(other, specs)) == [
        f"version is '0.1', but version.py has '{current}'"
    ]
    modules = {member.module for member in members()}
    assert list(check_projects.dependency_problems(other, modules)) == [
        "'torchx-specs~=1.7' is not one of ~=1.0 to ~=1.0",
        "'torchx-cli==1.0.0' is not one of ~=1.0 to ~=1.0",
        "torchx-cli is not in a lower layer",
        "'torchx-sched-lsf' is not one of ~=1.0 to ~=1.0",
        "torchx-sched-lsf is a plugin; only torchx and extensions depend on it",
    ]


def test_imports_for_type_checkers_are_found(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("if TYPE_CHECKING:\n    import os.path\n    from a.b import c\nimport d\n")
    assert list(check_projects.type_checking_imports(source)) == [(2, "os"), (3, "a")]


def test_import_all_reports_a_missing_optional_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "sample_package"
    package.mkdir()
    for name, text in {"__init__": "", "__main__": "1 / 0", "a": "import no_library.part"}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match="comes from"):
        import_all.main("sample_package", [])
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    found = import_all.main("sample_package", ["no_library"])
    assert found == "imported 1 modules, skipped sample_package.a (needs no_library)"
    with pytest.raises(ModuleNotFoundError, match="no_library"):
        import_all.main("sample_package", [])


def test_summary_counts_a_test_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = '<testcase classname="m" name="{}">{}</testcase>'
    failure, skip = '<failure message="x &lt;\n y"/>', "<skipped/>"
    ten = [case.format("a", ""), case.format("b", skip), case.format("c", skip)]
    eleven = [case.format("a", failure), case.format("b", skip), case.format("c", "")]
    for name, cases in {"3.10": ten, "3.11--x": eleven, "3.11--y": eleven}.items():
        (tmp_path / f"{name}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    assert summary.main(tmp_path, 0) == 1
    out = capsys.readouterr().out.splitlines()
    assert "FAILED in 3.11: m::a: x < y" in out
    assert out[-2:] == ["3 unique tests in 2 environments", "1 passed, 1 failed, 1 skipped"]


@pytest.mark.parametrize(("result", "code"), [("failed", 0), ("success", 2)])
def test_summary_fails_without_a_failed_test(
    result: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"sessions": [{"signatures": ["lint"], "result": result}]}
    (tmp_path / "nox-lint.json").write_text(json.dumps(report))
    assert summary.main(tmp_path, code) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_broken_links_and_failing_examples_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](page.md) [b](no.md) [c](#one-two) [d](#three)\n")
    found = ["link to no.md: no such file", "link to #three: no such heading"]
    assert list(check_docs.broken_links(page)) == found
    assert check_docs.run_python("1 / 0") == "ZeroDivisionError: division by zero"


def test_submissions_in_blocks_and_tables_are_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    good, bad = "torchx run train.py --lr 0.3", "torchx sweep no.py --grid lr=0.1"
    page.write_text(f"```sh\n{good}\ntorchx run --after @1 a.py\n```\n| a | `{bad}` | `other` |\n")
    assert list(check_docs.dry_runs([page])) == [(page, good), (page, bad)]
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    monkeypatch.setattr(check_docs, "DRY_RUN_PAGES", ("*.md",))
    [problem] = check_docs.dry_run_problems()
    assert problem.startswith(f"page.md: the dry run of '{bad}' fails: torchx: error: ")


def test_the_aws_table_has_upstreams_rows() -> None:
    rows = aws_resources.read_table()[1]
    upstream = {f"aws_{row['instance_type']}" for row in rows if row["source"] == "upstream"}
    assert upstream == set(json.loads(UPSTREAM.read_text("utf-8"))["resources"])


@pytest.mark.parametrize(
    ("java", "python"),
    [
        (".*", r"[^\n\r\x85\u2028\u2029]*"),
        (r"[\p{L}\p{Z}\p{N}_.:/=+\-@]*", r"[\w\s.:/=+\-@]*"),
        (r"arn:[\p{Alnum}\-]+\.[.]", r"arn:[a-zA-Z0-9\-]+\.[.]"),
    ],
)
def test_patterns_of_java_become_patterns_of_python(java: str, python: str) -> None:
    assert aws_limits.as_python(java) == python


def test_a_generated_module_is_written_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    module = tmp_path / "made.py"
    assert workspace.write_or_check(module, lambda: "a = 1\n", ["write"]) == 0
    assert workspace.write_or_check(module, lambda: "a = 1\n", ["check"]) == 0
    assert workspace.write_or_check(module, lambda: "a = 2\n", ["check"]) == 1
    assert "made.py: run `python tools/" in capsys.readouterr().out
    assert workspace.write_or_check(module, lambda: "", []) == 2
