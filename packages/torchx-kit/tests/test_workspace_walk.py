"""Tests of the walk through a workspace, of its files, and of their digest."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from torchx_kit.workspace import tree_digest, walk_workspace, workspace_files
from torchx_kit.workspace.ignore import TORCHX_IGNORE
from torchx_kit.workspace.secret_files import looks_secret
from torchx_kit.workspace.tree import open_project
from torchx_specs import Workspace
from torchx_specs.errors import WorkspaceError

LOCAL = LocalFileSystem()


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("a.py", "sub/b.py", "sub/deep/c.txt", "sub/x.log", "out/big.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "empty").mkdir()
    (root / ".torchxignore").write_text("*.log\nout\n")
    return root


def paths(workspace: Workspace | Path, **options: Any) -> list[str]:
    if isinstance(workspace, Path):
        workspace = Workspace({str(workspace): ""})
    return [entry.path for entry in workspace_files(workspace, **options)]


class TestWalk:
    def test_walk_yields_folders_from_the_root_with_their_files(self, project: Path) -> None:
        root = str(project)
        walked = [(d, dirs, sorted(files)) for d, dirs, files in walk_workspace(LOCAL, root)]
        assert walked == [
            (root, ["empty", "sub"], [".torchxignore", "a.py"]),
            (f"{root}/empty", [], []),
            (f"{root}/sub", ["deep"], ["b.py"]),
            (f"{root}/sub/deep", [], ["c.txt"]),
        ]

    def test_walk_yields_details_of_files(self, project: Path) -> None:
        _, _, files = next(iter(walk_workspace(LOCAL, str(project))))
        details = files["a.py"]
        assert details["name"] == f"{project}/a.py"
        assert (details["size"], details["type"], details["islink"]) == (4, "file", False)

    def test_ignore_file_may_have_another_name(self, project: Path) -> None:
        (project / ".dockerignore").write_text("sub")
        names = {
            name
            for _, _, files in walk_workspace(LOCAL, str(project), ".dockerignore")
            for name in files
        }
        assert names == {".torchxignore", ".dockerignore", "a.py", "big.bin"}

    def test_rules_of_several_ignore_files_apply_in_order(self, project: Path) -> None:
        (project / ".dockerignore").write_text("!out\nsub")
        both = paths(project, ignore_name=(".torchxignore", ".dockerignore"))
        assert both == [".dockerignore", ".torchxignore", "a.py", "out/big.bin"]

    def test_without_an_ignore_file_nothing_is_excluded(self, tmp_path: Path) -> None:
        assert paths(write(tmp_path, a="1", b__c="2")) == ["a", "b/c"]

    def test_walk_of_a_missing_folder_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match=r"missing of the workspace: No such file"):
            list(walk_workspace(LOCAL, str(tmp_path / "missing")))

    def test_folder_that_cannot_be_read_is_an_error(self, project: Path) -> None:
        walk = walk_workspace(LOCAL, str(project))
        next(walk)
        (project / "empty").rmdir()
        with pytest.raises(WorkspaceError, match=r"cannot read .*/empty of the workspace: No such"):
            list(walk)


class TestOtherFileSystems:
    """Tests with file systems of fsspec."""

    @pytest.fixture
    def memory(self, project: Path) -> Any:
        fsspec = pytest.importorskip("fsspec")
        fs = fsspec.filesystem("memory")
        fs.store.clear()
        fs.pseudo_dirs[:] = [""]
        for path in project.rglob("*"):
            if path.is_file():
                fs.pipe(f"/ws/{path.relative_to(project).as_posix()}", path.read_bytes())
        return fs

    def test_files_are_those_of_a_local_copy(self, memory: Any, project: Path) -> None:
        assert paths(Workspace({"memory://ws": ""})) == paths(project)
        assert paths(Workspace({"memory://ws/": ""})) == paths(project)

    def test_digest_is_that_of_a_local_copy(self, memory: Any, project: Path) -> None:
        remote = workspace_files(Workspace({"memory://ws": ""}))
        assert tree_digest(remote) == tree_digest(workspace_files(Workspace({str(project): ""})))

    def test_walk_of_a_memory_file_system(self, memory: Any) -> None:
        walked = [(d, dirs, sorted(files)) for d, dirs, files in walk_workspace(memory, "/ws")]
        assert walked == [
            ("/ws", ["sub"], [".torchxignore", "a.py"]),
            ("/ws/sub", ["deep"], ["b.py"]),
            ("/ws/sub/deep", [], ["c.txt"]),
        ]

    def test_single_file_is_a_project(self, memory: Any) -> None:
        (entry,) = workspace_files(Workspace({"memory://ws/a.py": "app/main.py"}))
        assert (entry.path, b"".join(entry.chunks())) == ("app/main.py", b"a.py")

    def test_file_url_is_a_local_path(self, project: Path) -> None:
        assert paths(Workspace({f"file://{project}": ""})) == paths(project)

    def test_missing_path_is_an_error(self, memory: Any) -> None:
        with pytest.raises(WorkspaceError, match="workspace does not exist: memory://nowhere"):
            paths(Workspace({"memory://nowhere": ""}))

    def test_unknown_protocol_is_an_error(self) -> None:
        pytest.importorskip("fsspec")
        with pytest.raises(
            WorkspaceError, match=r"workspace 'nosuch://x' cannot be opened: .*nosuch"
        ):
            paths(Workspace({"nosuch://x": ""}))

    def test_url_without_fsspec_names_the_command_that_installs_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(WorkspaceError, match=r"pip install 'torchx-specs\[fsspec\]'"):
            paths(Workspace({"s3://bucket/ws": ""}))


class TestTree:
    def test_files_are_ordered_and_have_sizes_and_modes(self, project: Path) -> None:
        (project / "a.py").chmod(0o750)
        entries = workspace_files(Workspace({str(project): ""}))
        assert [e.path for e in entries] == [".torchxignore", "a.py", "sub/b.py", "sub/deep/c.txt"]
        assert (entries[1].size, entries[1].mode, entries[1].link) == (4, 0o750, None)

    def test_projects_go_to_their_targets(self, project: Path, tmp_path: Path) -> None:
        lib = write(tmp_path / "lib", l="lib", deep__m="lib")
        workspace = Workspace({str(project): "", str(lib): "vendor/lib"})
        assert paths(workspace) == [
            ".torchxignore",
            "a.py",
            "sub/b.py",
            "sub/deep/c.txt",
            "vendor/lib/deep/m",
            "vendor/lib/l",
        ]

    def test_listing_needs_at_most_twice_the_memory_of_its_result(self, tmp_path: Path) -> None:
        for number in range(500):
            (tmp_path / str(number)).touch()
        workspace = Workspace({str(tmp_path): ""})
        workspace_files(workspace)  # Modules that the first call imports do not count.
        tracemalloc.start()
        try:
            files = workspace_files(workspace)
            size, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(files) == 500
        assert peak < 2 * size

    def test_file_of_the_later_project_wins(self, project: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "a.py").write_text("later")
        entries = {
            e.path: e for e in workspace_files(Workspace({str(project): "", str(other): ""}))
        }
        assert b"".join(entries["a.py"].chunks()) == b"later"

    def test_rules_of_a_project_and_of_the_root_project_both_apply(
        self, project: Path, tmp_path: Path
    ) -> None:
        lib = write(tmp_path / "lib", keep="1", skip="2", trace="3")
        (lib / ".torchxignore").write_text("skip")
        (lib / "trace").rename(lib / "trace.log")
        assert [p for p in paths(Workspace({str(project): "", str(lib): "lib"})) if "lib" in p] == [
            "lib/.torchxignore",
            "lib/keep",
        ]

    def test_single_files_may_be_renamed(self, project: Path) -> None:
        workspace = Workspace({f"{project}/a.py": "", f"{project}/sub/b.py": "c/d.py"})
        assert paths(workspace) == ["a.py", "c/d.py"]

    def test_tilde_is_the_home_directory(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(project))
        assert paths(Workspace({"~/sub": ""})) == ["b.py", "deep/c.txt", "x.log"]

    @pytest.mark.parametrize("target", ["/etc", "..", "../up", "a/../../b"])
    def test_target_outside_of_the_workspace_is_an_error(self, project: Path, target: str) -> None:
        with pytest.raises(WorkspaceError, match=r"not below the root of the workspace"):
            paths(Workspace({str(project): target}))

    def test_missing_project_is_an_error(self, project: Path) -> None:
        with pytest.raises(WorkspaceError, match=f"workspace does not exist: {project}/nope"):
            paths(Workspace({str(project): "", f"{project}/nope": "x"}))
        with pytest.raises(WorkspaceError, match=r"workspace does not exist: nope \(/"):
            open_project("nope")

    def test_file_that_cannot_be_read_is_an_error(self, project: Path) -> None:
        files = workspace_files(Workspace({str(project): ""}))
        (project / "a.py").unlink()
        with pytest.raises(WorkspaceError, match=r"cannot read .*/a.py of the workspace: No such"):
            tree_digest(files)

    def test_unusual_file_names_are_kept(self, tmp_path: Path) -> None:
        odd = ["a b", "ü", "x\ny", "$(x)", "-rf", "\udcff", "a'b\"c", "*?[", "\\"]
        for name in odd:
            (tmp_path / name).write_bytes(b"x")
        assert sorted(paths(tmp_path)) == sorted(odd)
        assert len(tree_digest(workspace_files(Workspace({str(tmp_path): ""})))) == 64


class TestLinks:
    def links(self, project: Path) -> dict[str, str | None]:
        return {e.path: e.link for e in workspace_files(Workspace({str(project): ""}))}

    def test_link_to_a_path_in_the_project_stays_a_link(self, project: Path) -> None:
        (project / "sub/up").symlink_to("../a.py")
        (project / "folder").symlink_to("sub")
        (project / "absolute").symlink_to(project / "sub" / "b.py")
        (project / "sub/root").symlink_to(project)
        links = self.links(project)
        assert links["sub/up"] == "../a.py"
        assert links["folder"] == "sub"
        assert links["absolute"] == "sub/b.py"
        assert links["sub/root"] == ".."
        assert not any(path.startswith("folder/") for path in links)

    def test_link_to_a_file_outside_is_refused_unless_links_are_followed(
        self, project: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "shared").write_text("shared")
        (tmp_path / "shared").chmod(0o600)
        (project / "data").symlink_to("../shared")
        with pytest.raises(WorkspaceError, match=r"data is a link to the file .*follow_links"):
            self.links(project)
        files = workspace_files(Workspace({str(project): ""}), follow_links=True)
        (entry,) = [e for e in files if e.path == "data"]
        assert (entry.link, entry.mode, b"".join(entry.chunks())) == (None, 0o600, b"shared")
        (project / TORCHX_IGNORE).write_text("data\n")
        assert "data" not in self.links(project)

    @pytest.mark.parametrize("target", ["id_rsa", ".ssh/config", "project/sub/.env"])
    def test_linked_file_that_looks_like_a_secret_is_left_out(
        self, project: Path, tmp_path: Path, target: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def found() -> set[str]:
            files = workspace_files(Workspace({str(project): ""}), follow_links=True)
            return {entry.path for entry in files if entry.link is None}

        assert project == tmp_path / "project"
        (tmp_path / target).parent.mkdir(exist_ok=True)
        (tmp_path / target).write_text("secret")
        (project / "sub/data").symlink_to(tmp_path / target)
        (project / TORCHX_IGNORE).write_text("sub/.env\n")
        assert "sub/data" not in found()
        assert "'sub/data'; to upload a file" in caplog.text
        (project / TORCHX_IGNORE).write_text("sub/.env\n!sub/data\n")
        assert "sub/data" in found()

    def test_link_to_an_excluded_file_stays_a_link_unless_links_are_followed(
        self, project: Path
    ) -> None:
        (project / "latest").symlink_to("sub/x.log")
        assert self.links(project)["latest"] == "sub/x.log"
        files = workspace_files(Workspace({str(project): ""}), follow_links=True)
        (entry,) = [e for e in files if e.path == "latest"]
        assert (entry.link, b"".join(entry.chunks())) == (None, b"sub/x.log")

    def test_link_to_a_folder_outside_is_an_error(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (project / "data").symlink_to(tmp_path / "data")
        with pytest.raises(WorkspaceError, match=r"data is a link to the folder .*torchxignore"):
            self.links(project)
        (project / ".torchxignore").write_text("data")
        assert "data" not in self.links(project)

    def test_dangling_link_in_the_project_stays_a_link(self, project: Path) -> None:
        (project / "later").symlink_to("runs/1")
        (project / "loop").symlink_to("loop")
        assert self.links(project)["later"] == "runs/1"
        assert self.links(project)["loop"] == "loop"

    def test_dangling_link_to_the_outside_is_skipped(
        self, project: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (project / ".#lock").symlink_to("/user@host.42")
        assert ".#lock" not in self.links(project)
        assert "is a link to /user@host.42, which does not exist" in caplog.text

    def test_workspace_may_be_a_link(self, project: Path, tmp_path: Path) -> None:
        (project / "inside").symlink_to("a.py")
        link = tmp_path / "link"
        link.symlink_to(project)
        assert self.links(link) == self.links(project)

    def test_sockets_and_pipes_are_skipped(
        self, project: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(project / "pipe")
        monkeypatch.chdir(project)  # The path of a socket must be short.
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("s")
            names = self.links(project)
        assert {"pipe", "s"}.isdisjoint(names)
        assert caplog.text.count("is neither a file nor a folder") == 2


class TestDigest:
    def digest(self, project: Path) -> str:
        return tree_digest(workspace_files(Workspace({str(project): ""})))

    def test_digest_ignores_times_owners_and_excluded_files(self, project: Path) -> None:
        before = self.digest(project)
        os.utime(project / "a.py", (1, 1))
        (project / "a.py").chmod(0o600)
        (project / "sub/y.log").write_text("excluded")
        (project / "empty2").mkdir()
        assert self.digest(project) == before

    def test_digest_covers_contents_modes_names_and_links(self, project: Path) -> None:
        digests = [self.digest(project)]
        (project / "a.py").write_text("b.py")
        digests.append(self.digest(project))
        (project / "a.py").chmod(0o755)
        digests.append(self.digest(project))
        (project / "a.py").rename(project / "aa.py")
        digests.append(self.digest(project))
        (project / "l").symlink_to("aa.py")
        digests.append(self.digest(project))
        (project / "l").unlink()
        (project / "l").symlink_to("sub")
        digests.append(self.digest(project))
        assert len(set(digests)) == 6

    def test_digest_separates_names_from_contents(self, tmp_path: Path) -> None:
        one = write(tmp_path / "one", ab="c", d="")
        two = write(tmp_path / "two", a="bc", d="")
        assert self.digest(one) != self.digest(two)

    def test_digest_algorithm_does_not_change(self, tmp_path: Path) -> None:
        # Names of images contain the digest: another algorithm would rebuild all images.
        write(tmp_path, a="1", b__c="2")
        (tmp_path / "l").symlink_to("a")
        one, two = (sha256(text).digest() for text in (b"1", b"2"))
        expected = b"file 1 32\na" + one + b"file 3 32\nb/c" + two + b"link 1 1\nla"
        assert self.digest(tmp_path) == sha256(expected).hexdigest()


class TestDefaults:
    """Files that are not uploaded unless a rule includes them."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        names = (".git/config", ".venv/bin/x", "a/node_modules/m.js", "a/__pycache__/m.pyc", "m.py")
        names += (".torchx-slurm/workspaces/0/m.py", "a/.torchx-lsf/b/script", ".torchx-acme/x")
        for name in (*names, ".gitignore", "node_modules_2/x"):
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        return tmp_path / "root"

    def test_repositories_environments_and_caches_stay_behind(self, root: Path) -> None:
        assert paths(root) == [".gitignore", "m.py", "node_modules_2/x"]
        walked = [name for _, _, files in walk_workspace(LOCAL, str(root)) for name in files]
        assert sorted(walked) == [".gitignore", "m.py", "x"]

    def test_git_file_of_a_worktree_stays_behind(self, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / ".git").write_text("gitdir: /elsewhere\n")
        assert paths(tmp_path / "tree") == []

    @pytest.mark.parametrize(
        ("rules", "included"),
        [
            ("!.git", ".git/config"),
            ("!.git/config", ".git/config"),
            ("!**/node_modules", "a/node_modules/m.js"),
        ],
    )
    def test_a_rule_includes_what_stays_behind_by_default(
        self, root: Path, rules: str, included: str
    ) -> None:
        (root / TORCHX_IGNORE).write_text(rules)
        assert included in paths(root)

    def test_names_that_a_project_includes_survive_the_rules_of_the_root(
        self, root: Path, tmp_path: Path
    ) -> None:
        (root / TORCHX_IGNORE).write_text("*.tmp\n")
        other = tmp_path / "other"
        (other / "node_modules").mkdir(parents=True)
        (other / "node_modules" / "x").write_text("x")
        (other / TORCHX_IGNORE).write_text("!node_modules\n")
        assert "sub/node_modules/x" in paths(Workspace({str(root): "", str(other): "sub"}))

    def test_files_that_look_like_secrets_are_named_and_left_out(
        self, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        private = "-----BEGIN RSA PRIVATE KEY-----\nx"
        secrets = {".env": "A=1", "a/id_rsa": "x", "server.key": "x", "k.pem": private}
        public = {".env.example": "A=", "ca.pem": "-----BEGIN CERTIFICATE-----\nx", "key": "x"}
        for name, text in {**secrets, **public, ".env.local": "A=1"}.items():
            (root / name).write_text(text)
        found = paths(root)
        assert public.keys() <= set(found)
        assert not secrets.keys() & set(found)
        assert ".env.local" not in found
        (record,) = caplog.records
        assert "'.env', '.env.local', 'k.pem', 'server.key', 'a/id_rsa'" in record.getMessage()
        assert "!.env" in record.getMessage()

    @pytest.mark.parametrize(
        "path",
        [
            *(".aws/credentials", ".aws/config", ".aws/sso/cache/1.json", ".docker/config.json"),
            *(".kube/config", "kubeconfig", "prod.kubeconfig", ".ssh/config", ".ssh/work"),
            *(".config/gcloud/credentials.db", ".config/gh/hosts.yml", ".cache/huggingface/token"),
            *(".envrc", ".npmrc", ".pypirc", ".netrc", ".git-credentials", ".pgpass", ".env.prod"),
            *("key.pem", "privkey.pem", "tls.key", "credentials.json", "service-account.json"),
            *("service-account-prod.json", "service_account.json", "client_secret_1.json"),
            *("id_rsa", "id_ed25519", "id_ed25519_work", "store.p12", ".cargo/credentials.toml"),
            *(".bash_history", ".m2/settings.xml", ".config/pip/pip.conf", ".python_history"),
            *(
                ".torchx/secrets/hf",
                "Key.PEM",
                "TLS.Key",
                "prod.env",
                "Staging.ENV",
                "secrets.yaml",
            ),
            *("secrets.yml", "Secrets.toml", "secrets.json", "secret.yaml", "terraform.tfstate"),
            *("terraform.tfstate.backup", "prod.tfstate", "user.keytab", "token", ".token"),
            *("token.json", "gcp-key.json", "sa_key.json", "x-firebase-adminsdk-1.json"),
            *("credentials.yaml", "Service-Account.json", "key.json"),
        ],
    )
    def test_file_with_a_secret_is_named_and_left_out(
        self, root: Path, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for file in (root / path, root / "sub" / path):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x")
        found = paths(root)
        assert path not in found
        assert f"sub/{path}" not in found
        assert f"'{path}'" in caplog.text
        (root / TORCHX_IGNORE).write_text(f"!{path}\n")
        assert path in paths(root)

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("ca.pem", "-----BEGIN CERTIFICATE-----\nx"),
            ("cert.pem", "x"),
            ("public_key.pem", "-----BEGIN PUBLIC KEY-----\nx"),
            ("release.key", "-----BEGIN PGP PUBLIC KEY BLOCK-----\nx"),
            *((path, "x") for path in (".ssh/id_rsa.pub", "id_ed25519.pub", "credentials.py")),
            *((path, "x") for path in ("service-account.yaml", "config.json", "aws/config")),
            *((path, "x") for path in (".aws/task-definition.json", "id_rsa.py", "env")),
            *((path, "x") for path in ("example.env", "secrets.py", "tokens.json", "token.py")),
            *((path, "x") for path in ("special_tokens_map.json", "tokenizer.json", "vocab.txt")),
            *((path, "x") for path in ("primary-key.json", "monkey.json", "main.tf", "token/x")),
            *((path, "x") for path in (".torchx/config", "secrets/README.md", "environment")),
            *(
                (path, "x")
                for path in ("credentials.json.example", ".envrc.md", "keys.json", "pip.conf")
            ),
            *((path, "x") for path in ("kube/config", "credentials", ".github/config.json")),
        ],
    )
    def test_file_without_a_secret_stays(
        self, root: Path, path: str, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        assert path in paths(root)
        assert caplog.records == []

    @pytest.mark.parametrize("name", ["fifo.pem", "fifo.key"])
    def test_fifo_with_the_name_of_a_key_blocks_nobody(self, name: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / name)
        assert looks_secret(name, str(tmp_path / name)) == name.endswith(".key")

    def test_a_rule_includes_a_file_that_looks_like_a_secret(
        self, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (root / "a" / ".env").write_text("A=1")
        (root / TORCHX_IGNORE).write_text("!a\n")
        assert "a/.env" not in paths(root)  # The rule does not match the file itself.
        caplog.clear()
        (root / TORCHX_IGNORE).write_text("!a/.env\n")
        assert "a/.env" in paths(root)
        assert caplog.records == []

    @pytest.mark.parametrize("folder", ["~", "/", "home-link"])
    def test_home_and_root_are_refused(
        self, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (tmp_path / "home-link").symlink_to(home)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(tmp_path)
        with pytest.raises(WorkspaceError, match=r"is (your home|the root) directory.*--workspace"):
            paths(Workspace({folder: ""}))


@pytest.mark.parametrize(
    ("rule", "expected"), [("", ["a.py"]), ("!run.log\n", ["a.py", "run.log"])]
)
def test_the_files_of_the_commands_own_output_are_left_out(
    tmp_path: Path, rule: str, expected: list[str]
) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / ".torchxignore").write_text(f"*.txt\n.torchxignore\n{rule}")
    code = (
        "import sys\n"
        "from torchx_kit.workspace import workspace_files\n"
        "from torchx_specs import Workspace\n"
        f"found = [e.path for e in workspace_files(Workspace({{{str(tmp_path)!r}: ''}}))]\n"
        "print(*sorted(found), file=sys.stderr)\n"
    )
    with (tmp_path / "run.log").open("w") as log:
        done = subprocess.run([sys.executable, "-c", code], stdout=log, stderr=subprocess.PIPE)
    assert done.stderr.decode().split() == expected


class TestGitignore:
    @pytest.fixture(autouse=True)
    def _git(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))

    def test_files_that_git_ignores_are_left_out(self, tmp_path: Path) -> None:
        names = ["a.py", "a.pyc", "build__x", "sub__b.pyc", "sub__k.txt", "new__c.pyc", "new__c.py"]
        project = write(tmp_path / "p", **dict.fromkeys([*names, "tracked.pyc", "data__big"], ""))
        write(project, **{".gitignore": "*.pyc\nbuild/\n/data\n", "sub__.gitignore": "k.txt\n"})
        write(project, **{TORCHX_IGNORE: "!data\n"})
        for command in (["init", "-q"], ["add", "-f", "tracked.pyc"]):
            subprocess.run(["git", *command], cwd=project, check=True)

        def uploaded(path: Path) -> list[str]:
            files = workspace_files(Workspace({str(path): ""}), gitignore=True)
            return [f.path for f in files if not f.path.startswith(".") and "/." not in f.path]

        assert uploaded(project) == ["a.py", "data/big", "new/c.py", "tracked.pyc"]
        assert uploaded(project / "new") == ["c.py"]
        assert len(workspace_files(Workspace({str(project): ""}))) > len(names)

    def test_folder_outside_of_a_repository_is_an_error(self, tmp_path: Path) -> None:
        workspace = Workspace({str(write(tmp_path / "p", a="")): ""})
        with pytest.raises(WorkspaceError, match=r"gitignore: git cannot list .*not a git reposi"):
            workspace_files(workspace, gitignore=True)

    def test_missing_git_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(WorkspaceError, match="gitignore: cannot run git: No such file"):
            workspace_files(Workspace({str(tmp_path): ""}), gitignore=True)
