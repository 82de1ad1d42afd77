"""The mixin through which schedulers use workspace builders, whichever are installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from torchx_specs.errors import PluginError, RequestError, WorkspaceError, nearest
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.api import WorkspaceMixin
from torchx_specs.workspace.builder import (
    METADATA_KEY,
    BuilderOutput,
    BuiltReference,
    WorkspaceBuilder,
)

_PLAN = "_workspace_plan"


class MissingBuilderError(RequestError):
    """The builder is one of ours that is not installed."""


class BuilderWorkspaceMixin(WorkspaceMixin[Any]):
    """Lets a scheduler take workspaces along by any installed :class:`WorkspaceBuilder`.

    The option ``workspace_type`` picks the builder. A dry run writes the reference of what will be
    built into ``role.image``, and builds nothing. The scheduler calls :meth:`build_pending` before
    it submits::

        class AcmeScheduler(BuilderWorkspaceMixin, Scheduler[AcmeOpts]):
            default_workspace_type = "docker"
            workspace_outputs = frozenset({"image"})

            def schedule(self, dryrun_info: AppDryRunInfo[AcmeRequest]) -> str:
                self.build_pending(dryrun_info)
                return self._client.submit(dryrun_info.request)

    What is pending is kept in the role's metadata, as plain data under :data:`METADATA_KEY`; it
    survives a copy, and a way through a file.
    """

    #: The builder that is used unless ``workspace_type`` says otherwise.
    default_workspace_type: ClassVar[str] = "dir"
    #: What the scheduler can run; other builders are not offered.
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image", "folder"})
    #: False if jobs run on this machine, so that nothing need be pushed.
    workspace_remote: ClassVar[bool] = True

    def workspace_opts(self) -> runopts:
        """Returns ``workspace_type``, and the options of every builder the scheduler can use."""
        builders = self._workspace_builders()
        opts = runopts()
        names = ", ".join(dict.fromkeys([self.default_workspace_type, *builders]))
        opts.add(
            "workspace_type",
            type_=str,
            default=self.default_workspace_type,
            help=f"how the workspace is taken along, one of: {names}",
        )
        for name, builder in builders.items():
            if name != self.default_workspace_type:
                opts.update(builder.opts())
        if self.default_workspace_type in builders:  # last, for its options win
            opts.update(builders[self.default_workspace_type].opts())
        return opts

    def workspace_builder(self, name: str) -> WorkspaceBuilder:
        """Returns the builder of that name.

        Raises:
            RequestError: there is none, or it makes what this scheduler cannot run
            PluginError: its plugin cannot be loaded, or several claim the name
        """
        builders = self._workspace_builders()
        if name in builders:
            return builders[name]
        have = f" valid types: {', '.join(builders) or '(none installed)'}"
        if name in _installed():
            output = _load(name).output  # raises if that is why it is not among the builders
            raise RequestError(
                f"workspace_type '{name}' makes a {output}, which this scheduler cannot run;{have}"
            )
        install = _install_command(name)
        if install:
            raise MissingBuilderError(f"workspace_type '{name}' is not installed: {install};{have}")
        raise RequestError(f"unknown workspace_type '{name}';{nearest(name, builders)}{have}")

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Plans: gives the role the image its workspace will be built into, and notes what to do.

        Raises:
            WorkspaceError: the workspace cannot be read
            RequestError: unknown builder, or roles with different workspaces that would end up in
                one place
        """
        if not role.workspace:
            return
        kind = str(cfg.get("workspace_type") or self.default_workspace_type)
        base = _base_image(role)
        key = (kind, base, role.workspace)
        if key not in build_cache:
            try:
                builder = self.workspace_builder(kind)
            except MissingBuilderError:
                if role.workspace.required:
                    raise
                _tell_stays_behind(kind)
                build_cache[key] = None
            else:
                build_cache[key] = builder.plan(base, role.workspace, cfg)
        plan = build_cache[key]
        if not isinstance(plan, BuiltReference):
            return
        other = build_cache.setdefault(("place", plan.image), role)
        if isinstance(other, Role) and other.workspace != role.workspace:
            raise RequestError(
                f"roles {other.name} and {role.name} have different workspaces,"
                f" and both would go to {plan.image}"
            )
        role.image = plan.image
        role.metadata[METADATA_KEY] = {"type": kind, "base": base, "image": plan.image}
        setattr(role, _PLAN, plan)

    def build_pending(
        self,
        job: AppDryRunInfo[Any] | AppDef | Iterable[Role],
        cfg: Mapping[str, CfgVal] | None = None,
    ) -> dict[str, str]:
        """Builds, and pushes for a remote job, what a dry run only planned; each image once.

        Args:
            job: a dry run, its app, or roles; they note that the build was done
            cfg: the options, those of the dry run if None

        Returns:
            the digest (empty where there is none) of each image that was pending

        Raises:
            WorkspaceError: a build failed, or the workspace has changed since it was planned
        """
        if isinstance(job, AppDryRunInfo):
            cfg = job.cfg if cfg is None else cfg
            roles: Iterable[Role] = job.app.roles if job.app else ()
        else:
            roles = job.roles if isinstance(job, AppDef) else job
        done: dict[str, str] = {}
        for role in roles:
            note = _note(role)
            if note is None or "digest" in note:
                continue
            image = note["image"]
            if image not in done:
                done[image] = self._build(role, note, cfg or {})
            role.metadata[METADATA_KEY] = {**note, "digest": done[image]}
        return done

    def _build(self, role: Role, note: Mapping[str, str], cfg: Mapping[str, CfgVal]) -> str:
        import logging

        builder = self.workspace_builder(note["type"])
        plan = getattr(role, _PLAN, None)
        if not isinstance(plan, BuiltReference) or plan.image != note["image"]:
            plan = _plan_again(builder, role, note, cfg)
        logging.getLogger(__name__).info(
            "role %s: building %s from %s", role.name, plan.image, role.workspace
        )
        built = builder.build(plan, cfg)
        if builder.remote and not built.ready:
            built = builder.push(plan, built, cfg)
        return built.digest

    def _workspace_builders(self) -> dict[str, WorkspaceBuilder]:
        """Returns the usable builders; one that cannot be loaded is told of, and left out."""
        builders: dict[str, WorkspaceBuilder] | None = self.__dict__.get("_builders")
        if builders is None:
            builders = {}
            for name in _installed():
                try:
                    builder = _load(name)
                except PluginError as e:
                    import logging

                    logging.getLogger(__name__).warning("%s", e)
                    continue
                if builder.output in self.workspace_outputs:
                    builder.remote = self.workspace_remote
                    builders[name] = builder
            self.__dict__["_builders"] = builders
        return builders


def _installed() -> list[str]:
    from torchx_specs.plugins.manager import get_manager

    return list(dict.fromkeys(["dir", *get_manager().workspaces().names()]))


def _install_command(name: str) -> str:
    """Return the command that installs a builder, or an empty string if none is known."""
    from torchx_specs.plugins.manager import get_manager

    return get_manager().workspaces().installable.get(name, "")


def _load(name: str) -> WorkspaceBuilder:
    """Returns a new builder.

    Raises:
        PluginError: its plugin cannot be loaded or gives something else, or several plugins claim
            the name
    """
    from torchx_specs.plugins.manager import get_manager

    record = get_manager().workspaces().find(name)
    if record is None:  # ours, which a plugin may replace
        from torchx_kit.workspace.dir_builder import DirBuilder

        return DirBuilder()
    factory = record.load()
    try:
        builder = factory()
    except (Exception, SystemExit) as e:
        raise PluginError(
            f"workspace builder '{name}' of {record.origin} failed: {type(e).__name__}: {e}"
        ) from e
    if not isinstance(builder, WorkspaceBuilder):
        raise PluginError(
            f"workspace builder '{name}' of {record.origin} is no WorkspaceBuilder: {builder!r:.99}"
        )
    return builder


def _tell_stays_behind(kind: str) -> None:
    import logging

    logging.getLogger(__name__).warning(
        "the working directory is not uploaded; the job sees only the files in its image."
        " To upload it: %s. To omit this warning: --workspace=''",
        _install_command(kind),
    )


def _note(role: Role) -> Mapping[str, str] | None:
    """Returns what the metadata says of the role's image, None if that was not planned."""
    note = role.metadata.get(METADATA_KEY)
    if not isinstance(note, Mapping) or note.get("image") != role.image:
        return None  # nothing planned, or another image was given to the role since
    return note if {"type", "base"} <= note.keys() else None


def _base_image(role: Role) -> str:
    """Returns what the workspace is added to: not what an earlier plan put in its place."""
    note = _note(role)
    return role.image if note is None else note["base"]


def _plan_again(
    builder: WorkspaceBuilder, role: Role, note: Mapping[str, str], cfg: Mapping[str, CfgVal]
) -> BuiltReference:
    """Plans for a role that was planned elsewhere, e.g. before it was written to a file."""
    if not role.workspace:
        raise WorkspaceError(
            f"role {role.name}: {role.image} was never built, and its workspace is gone"
        )
    plan = builder.plan(note["base"], role.workspace, cfg)
    if plan is None or plan.image != role.image:
        raise WorkspaceError(
            f"role {role.name}: workspace or options have changed since the dry run,"
            f" which planned {role.image}; make a new dry run"
        )
    return plan
