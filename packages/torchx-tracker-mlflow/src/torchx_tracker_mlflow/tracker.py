"""The tracker: each run is an MLflow run with the same name.

=============  ==================================================================================
metadata       tags; all values are text
artifacts      uploaded files, in a directory with the artifact's name; remote paths as tags
parameters     :meth:`MLflowTracker.log_params_flat`
sources        tags; the first source without an artifact name is also MLflow's parent run
=============  ==================================================================================
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchx_kit.home import TORCHX_HOME, home_path
from torchx_kit.trackers.checks import (
    check_run_id,
    check_source_id,
    json_text,
    parent_run_filter,
    sources_with_artifact,
)
from torchx_kit.trackers.lineage import walk_lineage
from torchx_specs.errors import one_line
from torchx_specs.trackers.api import (
    Lineage,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker_mlflow import encoding
from torchx_tracker_mlflow.config import inline_config, read_config
from torchx_tracker_mlflow.local_stores import allow_file_store, missing_library

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, FileInfo, Run

ENV_EXPERIMENT_NAME = "TORCHX_TRACKING_EXPERIMENT_NAME"
_ENV_TRACKING_URI = "MLFLOW_TRACKING_URI"
_LOCAL_FOLDER = "mlruns"
_PARENT_RUN = "mlflow.parentRunId"
#: How long other ranks wait for rank 0 to create the run, in seconds.
_MAX_WAIT = 5.0
# MLflow's limits for one request.
_MAX_TAGS = 100
_MAX_PARAMS = 100
_MAX_RUNS = 1000


def create_tracker(config: str | None) -> MLflowTracker:
    """Return the tracker that a configuration describes, without contacting the server.

    Args:
        config: See :func:`torchx_tracker_mlflow.config.read_config`.

    Raises:
        TrackerValueError: The configuration is invalid.
    """
    settings: dict[str, Any] = {**read_config(config)}
    return MLflowTracker(**settings)


# The runner calls this to pass the configuration to a remote job (torchx_runner.tracker_configs).
create_tracker.inline_config = inline_config  # type: ignore[attr-defined]


class MLflowTracker(TrackerBase):
    """A tracker that records runs on an MLflow tracking server.

    Args:
        experiment_name: Name of the experiment (default: ``default-experiment/<user>/<host>``). The
            variable ``$TORCHX_TRACKING_EXPERIMENT_NAME`` overrides this name.
        tracking_uri: URI of the server (default: ``$MLFLOW_TRACKING_URI``, else
            ``$TORCHX_HOME/mlruns``, a directory that only this user can read).
        artifact_location: Location of the artifacts of a new experiment (default: the server's).
        sleep: Function that waits for a number of seconds.
    """

    def __init__(
        self,
        experiment_name: str | None = None,
        tracking_uri: str | None = None,
        artifact_location: str | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._experiment_name = experiment_name
        self._uri = tracking_uri or os.environ.get(_ENV_TRACKING_URI) or _local_uri()
        self._artifact_location = artifact_location
        self._sleep = sleep
        self._process = 0
        self._cached_client: MlflowClient | None = None
        self._experiment: Experiment | None = None
        self._run_ids: dict[str, str] = {}
        self._lock = Lock()

    @staticmethod
    def default_experiment_name() -> str:
        """Return the default name of the experiment."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # the user id has no name, which is common in containers
            user = str(os.getuid())
        return f"default-experiment/{user}/{socket.getfqdn()}"

    @property
    def experiment_name(self) -> str:
        """Name of the experiment."""
        named = os.environ.get(ENV_EXPERIMENT_NAME) or self._experiment_name
        return named or self.default_experiment_name()

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the experiment, which is created if it does not exist."""
        return str(self._get_or_create_experiment().experiment_id)

    @property
    def artifact_location(self) -> str:
        """Location of the experiment's artifacts."""
        return str(self._get_or_create_experiment().artifact_location)

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Record key-value pairs as tags; an existing key is replaced."""
        tags = dict(encoding.metadata_tag(key, run_id, value) for key, value in kwargs.items())
        self._set_tags(run_id, tags)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run; all values are text."""
        return encoding.read_metadata(self._tags(run_id))

    def metadata_of_runs(self, run_ids: Iterable[str]) -> dict[str, dict[str, object]]:
        """Return the metadata and the latest metrics of many runs, by run id.

        The ids that a filter can contain need one search, by their common prefix; every other id
        needs its own search. A run that does not exist is missing from the result.

        Args:
            run_ids: Ids of runs.
        """
        requested = set(run_ids)
        plain = [run_id for run_id in requested if encoding.is_plain_run_name(run_id)]
        conditions = [
            c for run_id in requested.difference(plain) for c in encoding.run_filters(run_id)[:1]
        ]
        if plain:
            # Search by prefix, because not every store can search for a list of names. The result
            # may contain other runs, so it is filtered below.
            prefix = os.path.commonprefix(plain)  # noqa: RUF071 - of characters, not of directories
            conditions.append(f"tags.mlflow.runName LIKE '{prefix}%'")
        found: dict[str, dict[str, object]] = {}
        for condition in conditions:
            runs = [run for run in self._search(condition) if _torchx_id(run) in requested]
            for run in sorted(runs, key=_age):
                values = found.setdefault(_torchx_id(run), {})
                values.update(encoding.read_metadata(run.data.tags))
                values.update(run.data.metrics)
        return found

    def history(self, run_id: str) -> Mapping[str, list[tuple[float, float]]]:
        """Return the values of MLflow's metrics, which a job records with MLflow's own API."""
        found: dict[str, list[tuple[float, float]]] = {}
        for run in self._find(run_id):
            for key in run.data.metrics:
                with self._translated_errors(f"read the metric '{key}'"):
                    points = self._client.get_metric_history(run.info.run_id, key)
                found.setdefault(key, []).extend((p.step, p.value) for p in points)
        return found

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Upload a file or folder as an artifact, or replace the artifact of that name.

        A path that is not on this machine, such as ``s3://bucket/model``, is only recorded.
        """
        if not name:
            raise TrackerValueError(f"the name of an artifact of run '{run_id}' is empty")
        path = os.fspath(path)
        for key, value in (metadata or {}).items():
            json_text(key, run_id, value)
        record: dict[str, Any] = {
            "name": name,
            "path": path,
            "metadata": None if metadata is None else dict(metadata),
        }
        tags: dict[str, str] = {}
        if os.path.exists(path):
            mlflow_id = self._ensure_run(run_id)
            folder = (
                name if encoding.is_artifact_directory(name) else f"torchx-{encoding.digest(name)}"
            )
            record["folder"] = folder
            with self._translated_errors(f"upload '{path}'"):
                if os.path.isdir(path):
                    self._client.log_artifacts(mlflow_id, path, folder)
                else:
                    record.update(file=os.path.basename(path), size=os.path.getsize(path))
                    self._client.log_artifact(mlflow_id, path, folder)
            # Older releases read these tags, and MLflow's pages show them.
            for key, value in (metadata or {}).items():
                tag = f"{encoding.ARTIFACT_METADATA}{name}.{key}"
                if encoding.is_name(tag):
                    tags[tag] = encoding.to_text(key, run_id, value)
        tags[encoding.ARTIFACT + encoding.digest(name)] = json_text(name, run_id, record)
        self._set_tags(run_id, tags)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name.

        The ``path`` of an uploaded artifact is its location in MLflow's artifact store. The
        metadata of an uploaded file has the key ``mlflow.file_size``, the file's size in bytes.
        """
        found: dict[str, TrackerArtifact] = {}
        for run in self._find(run_id):
            tags = run.data.tags
            records = [
                record
                for name, value in tags.items()
                if name.startswith(encoding.ARTIFACT)
                and not name.startswith(encoding.ARTIFACT_METADATA)
                and (record := encoding.from_json(value)) is not None
            ]
            folders = {record.get("folder") for record in records}
            for folder, file in self._files(run, folders):
                found[folder] = _older_artifact(run, folder, file)
            for record in records:
                artifact = _artifact(run, record)
                found[artifact.name] = artifact
        return found

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run was made from another run, or from one of its artifacts."""
        check_source_id(run_id, source_id)
        link = {"source_id": source_id, "artifact_name": artifact_name}
        name = f"{encoding.SOURCE}{encoding.digest(source_id, artifact_name)}"
        tags = {
            name: json_text(source_id, run_id, link),
            encoding.PARENT + encoding.digest(source_id): "1",
        }
        if artifact_name is None and _PARENT_RUN not in self._tags(run_id):
            parents = self._find(source_id)
            if parents and source_id != run_id:
                tags[_PARENT_RUN] = parents[0].info.run_id
        self._set_tags(run_id, tags)

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the sources of a run; with ``artifact_name``, only sources with that artifact."""
        tags = self._tags(run_id)
        links = [
            link
            for name, value in sorted(tags.items())
            if name.startswith(encoding.SOURCE)
            and isinstance((link := encoding.from_json(value) or {}).get("source_id"), str)
        ]
        found = [TrackerSource(link["source_id"], link.get("artifact_name")) for link in links]
        parent = tags.get(_PARENT_RUN)
        if parent and not found:  # the parent was set with MLflow's own API
            with self._translated_errors("read the parent run"):
                found = [TrackerSource(_torchx_id(self._client.get_run(parent)), None)]
        found.sort(key=lambda s: (s.source_run_id, s.artifact_name or ""))
        return sources_with_artifact(found, artifact_name)

    def lineage(self, run_id: str) -> Lineage:
        """Return the ancestors and descendants of a run, with one or more requests per run."""
        return walk_lineage(self, run_id)

    def run_ids(self, **kwargs: str) -> list[str]:
        """Return the ids of the runs, newest first.

        Args:
            **kwargs: ``parent_run_id=...`` returns only the runs made from that run.

        Raises:
            TrackerValueError: ``kwargs`` has another key.
        """
        parent = parent_run_filter(kwargs)
        filters = [""] if parent is None else self._parent_filters(parent)
        found = (run for condition in filters for run in self._search(condition))
        return list(dict.fromkeys(map(_torchx_id, found)))

    def log_params_flat(self, run_name: str, cfg: Any, key: str = "") -> None:
        """Record a configuration as parameters.

        ``{"optimizer": {"lr": 0.1}}`` becomes the parameter ``optimizer.lr``. Fields of nested
        dataclasses are named in the same way. MLflow does not allow a parameter to change.

        Args:
            run_name: Id of the run.
            cfg: A dataclass, a dictionary, or a list of dataclasses.
            key: Prefix of the parameters' names.

        Raises:
            TrackerValueError: MLflow rejects a name or a value, or a single value has no ``key``.
        """
        from mlflow.entities import Param

        pairs = [Param(name, text) for name, text in encoding.flatten(cfg, key)]
        run = self._ensure_run(run_name)
        with self._translated_errors(f"record parameters of run '{run_name}'"):
            for begin in range(0, len(pairs), _MAX_PARAMS):
                self._client.log_batch(run, params=pairs[begin : begin + _MAX_PARAMS])

    def get_run(self, run_name: str) -> Run:
        """Return the MLflow run with this TorchX id; create it if it does not exist."""
        mlflow_id = self._ensure_run(run_name)
        with self._translated_errors(f"read run '{run_name}'"):
            return self._client.get_run(mlflow_id)

    def get_run_id(self, run_name: str) -> str:
        """Return MLflow's own id of a run; create the run if it does not exist."""
        return self._ensure_run(run_name)

    def close(self) -> None:
        """Mark the runs that this tracker has written to as finished."""
        for run_id, mlflow_id in self._run_ids.items():
            with self._translated_errors(f"end run '{run_id}'"):
                self._client.set_terminated(mlflow_id)
        self._run_ids.clear()

    def __repr__(self) -> str:
        return f"<MLflowTracker: tracking_uri={_without_password(self._uri)}>"

    @property
    def _client(self) -> MlflowClient:
        """The MLflow client of this process."""
        if self._cached_client is None or self._process != os.getpid():
            from mlflow import MlflowClient

            if self._uri == _local_uri():
                TORCHX_HOME(_LOCAL_FOLDER)  # creates the directory with the mode 0700
            with allow_file_store(self._uri):  # the client opens the store
                self._cached_client = MlflowClient(tracking_uri=self._uri)
            self._process = os.getpid()
        return self._cached_client

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        """Convert errors of MLflow and its libraries to tracker errors.

        Args:
            what: The failing action, for the error message ("cannot ...").
        """
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (TrackerBackendError, TrackerValueError):
            raise
        except Exception as e:
            reason = one_line(e)[:500]
            reason = re.sub(r"(?<=://)[^/@\s]+@", "", reason)
            reason = missing_library(self._uri) or reason
            text = f"the mlflow tracker cannot {what} at {_without_password(self._uri)}: {reason}"
            invalid = isinstance(e, MlflowException) and e.error_code == "INVALID_PARAMETER_VALUE"
            raise (TrackerValueError(text) if invalid else TrackerBackendError(text)) from e

    def _find_experiment(self) -> Experiment | None:
        """Return the experiment, or None if it does not exist."""
        if self._experiment is None:
            name = self.experiment_name
            with self._translated_errors(f"find experiment '{name}'"):
                self._experiment = self._client.get_experiment_by_name(name)
        if self._experiment is not None and self._experiment.lifecycle_stage != "active":
            raise TrackerBackendError(
                f"the mlflow tracker: experiment '{self._experiment.name}' is deleted; restore it,"
                f" or set experiment_name or ${ENV_EXPERIMENT_NAME} to another one"
            )
        return self._experiment

    def _get_or_create_experiment(self) -> Experiment:
        found = self._find_experiment()
        if found is not None:
            return found
        from mlflow.exceptions import MlflowException

        name = self.experiment_name
        with self._translated_errors(f"create experiment '{name}'"):
            try:
                self._client.create_experiment(name, artifact_location=self._artifact_location)
            except MlflowException as e:
                if e.error_code != "RESOURCE_ALREADY_EXISTS":  # another rank created it
                    raise
        found = self._find_experiment()
        if found is None:
            raise TrackerBackendError(
                f"the mlflow tracker: experiment '{name}' does not exist after its creation"
            )
        return found

    def _search(self, condition: str) -> Iterator[Run]:
        experiment = self._find_experiment()
        token: str | None = None
        while experiment is not None:
            with self._translated_errors("search for runs"):
                page = self._client.search_runs(
                    [experiment.experiment_id],
                    filter_string=condition,
                    max_results=_MAX_RUNS,
                    page_token=token,
                )
            yield from page
            token = page.token
            if not token:
                break

    def _find(self, run_id: str) -> list[Run]:
        """Return the MLflow runs with this TorchX id, oldest first.

        There may be several, if several ranks created the run at the same time.
        """
        check_run_id(run_id)
        for condition in encoding.run_filters(run_id):
            found = list(self._search(condition))
            if found:
                return sorted(found, key=_age)
        return []

    def _ensure_run(self, run_id: str) -> str:
        """Return MLflow's own id of a run, and create a missing run.

        Ranks other than 0 first wait for rank 0 to create the run.
        """
        if run_id not in self._run_ids:
            with self._lock:
                if run_id not in self._run_ids:
                    self._run_ids[run_id] = self._find_or_create(run_id)
        return self._run_ids[run_id]

    def _find_or_create(self, run_id: str) -> str:
        runs = self._find(run_id)
        if not runs and os.environ.get("RANK", "0") != "0":
            runs = self._wait_for(run_id)
        if runs:
            return str(runs[0].info.run_id)
        created = self._create_run(run_id)
        # MLflow cannot check for a run and create it in one step, so several ranks may create the
        # run. All ranks write to the oldest. The others are kept and also read, because a rank may
        # have written to them before.
        first = str(next((run.info.run_id for run in self._find(run_id)), created))
        if first != created:
            with self._translated_errors(f"end the duplicate run '{run_id}'"):
                self._client.set_terminated(created)
        return first

    def _wait_for(self, run_id: str) -> list[Run]:
        deadline = time.monotonic() + _MAX_WAIT
        pause = 0.05
        while time.monotonic() < deadline:
            self._sleep(pause)
            runs = self._find(run_id)
            if runs:
                return runs
            pause = min(2 * pause, 1.0)
        return []

    def _create_run(self, run_id: str) -> str:
        tags = {"mlflow.source.name": sys.argv[0], "mlflow.source.type": "JOB"}
        name = encoding.run_name(run_id)
        if not encoding.is_plain_run_name(run_id):
            tags[encoding.RUN_DIGEST] = encoding.digest(run_id)
            tags[encoding.RUN_ID] = json_text("run_id", run_id, {"run_id": run_id})
        experiment = self._get_or_create_experiment().experiment_id
        with self._translated_errors(f"create run '{run_id}'"):
            return str(self._client.create_run(experiment, run_name=name, tags=tags).info.run_id)

    def _tags(self, run_id: str) -> dict[str, str]:
        return {name: text for run in self._find(run_id) for name, text in run.data.tags.items()}

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        batch = [RunTag(name, text) for name, text in tags.items()]
        mlflow_id = self._ensure_run(run_id)
        with self._translated_errors(f"record in run '{run_id}'"):
            for begin in range(0, len(batch), _MAX_TAGS):
                self._client.log_batch(mlflow_id, tags=batch[begin : begin + _MAX_TAGS])

    def _parent_filters(self, parent: str) -> list[str]:
        filters = [f"tags.`{encoding.PARENT}{encoding.digest(parent)}` = '1'"]
        filters += [f"tags.{_PARENT_RUN} = '{run.info.run_id}'" for run in self._find(parent)]
        return filters

    def _files(self, run: Run, known: set[Any]) -> Iterator[tuple[str, FileInfo]]:
        """Yield each artifact directory that is not in ``known``, and one file in it."""
        pending: list[str | None] = [None]
        while pending:
            folder = pending.pop()
            with self._translated_errors("list artifacts"):
                entries = self._client.list_artifacts(run.info.run_id, folder)
            files = [entry for entry in entries if not entry.is_dir]
            if folder is not None and files:
                yield folder, files[-1]
            pending += [entry.path for entry in entries if entry.is_dir and entry.path not in known]


def _artifact(run: Run, record: dict[str, Any]) -> TrackerArtifact:
    """Return the artifact that the record in a tag describes."""
    metadata = record.get("metadata")
    path = str(record.get("path"))
    if record.get("folder"):
        path = f"{run.info.artifact_uri}/{record['folder']}"
        if record.get("file"):
            path += f"/{record['file']}"
            metadata = {**(metadata or {}), "mlflow.file_size": record.get("size")}
    return TrackerArtifact(str(record.get("name")), path, metadata)


def _older_artifact(run: Run, folder: str, file: FileInfo) -> TrackerArtifact:
    """Return an artifact that an older release uploaded, without a record in a tag.

    The artifact's name is the name of its directory.
    """
    prefix = f"{encoding.ARTIFACT_METADATA}{folder}."
    tags = run.data.tags.items()
    metadata: dict[str, object] = {
        name.removeprefix(prefix): text for name, text in tags if name.startswith(prefix)
    }
    metadata["mlflow.file_size"] = file.file_size
    return TrackerArtifact(folder, f"{run.info.artifact_uri}/{file.path}", metadata)


def _age(run: Run) -> tuple[int, str]:
    """Return the key that sorts MLflow runs from the oldest to the newest."""
    return run.info.start_time, run.info.run_id


def _torchx_id(run: Run) -> str:
    """Return the TorchX id of an MLflow run."""
    record = encoding.from_json(run.data.tags.get(encoding.RUN_ID, "")) or {}
    return str(record.get("run_id") or run.info.run_name)


def _local_uri() -> str:
    # The folder is not below /tmp, because another user could create it there first.
    return f"file://{quote(os.path.abspath(home_path(_LOCAL_FOLDER)))}"


def _without_password(uri: str) -> str:
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else uri
