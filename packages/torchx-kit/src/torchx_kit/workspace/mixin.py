"""The mixin with which schedulers use the installed workspace builders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from torchx_kit.workspace.builder import BuilderOutput, BuiltReference, WorkspaceBuilder
from torchx_specs.errors import PluginError, RequestError, WorkspaceError, nearest
from torchx_specs.model.app import AppDef, AppDryRunInfo, Role
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.plugins.manager import get_manager
from torchx_specs.workspace.api import METADATA_KEY, WorkspaceMixin

#: The name of the role's attribute that holds the plan of the role's build.
_PLAN = "_workspace_plan"


class MissingBuilderError(RequestError):
    """The builder is known, but not installed."""


class BuilderWorkspaceMixin(WorkspaceMixin[Any]):
    """Lets a scheduler upload workspaces with any installed :class:`WorkspaceBuilder`.

    The option ``workspace_type`` selects the builder. A dry run writes the reference of the planned
    build to ``role.image``, and builds nothing. The scheduler calls :meth:`build_pending` before it
    submits::

        class AcmeScheduler(BuilderWorkspaceMixin, Scheduler[AcmeOpts]):
            default_workspace_type = "docker"
            workspace_outputs = frozenset({"image"})

            def schedule(self, dryrun_info: AppDryRunInfo[AcmeRequest]) -> str:
                self.build_pending(dryrun_info)
                return self._client.submit(dryrun_info.request)

    The role's metadata holds the pending build as plain data, under :data:`METADATA_KEY`, so that
    it survives a copy of the role and serialization.
    """

    #: The default of the option ``workspace_type``.
    default_workspace_type: ClassVar[str] = "dir"
    #: The outputs that the scheduler can run; builders with another output are not offered.
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image", "folder"})
    #: False if jobs run on this machine, so that images are not pushed.
    workspace_remote: ClassVar[bool] = True

    def workspace_opts(self) -> runopts:
        """Return ``workspace_type``, and the options of each builder that the scheduler can use."""
        default = self.default_workspace_type
        opts = runopts()
        opts.add(
            "workspace_type",
            type_=str,
            default=default,
            help="upload the workspace in this way, one of: "
            + ", ".join(dict.fromkeys([default, *self._builders])),
        )
        # Add the default type last, so that its definition of an option wins.
        for name in sorted(self._builders, key=lambda name: name == default):
            opts.update(self._builders[name].opts())
        return opts

    def workspace_builder(self, name: str) -> WorkspaceBuilder:
        """Return the builder with this name.

        Raises:
            RequestError: There is no such builder, or the scheduler cannot run its output.
            PluginError: The builder's plugin cannot be loaded, or several plugins use the name.
        """
        builders = self._builders
        if name in builders:
            return builders[name]
        valid = f" valid types: {', '.join(builders) or '(none installed)'}"
        if name in _installed_names():
            output = load_builder(name).output  # Raises if the builder cannot be loaded.
            raise RequestError(
                f"workspace_type '{name}' builds an output of type '{output}', which this scheduler"
                f" cannot run;{valid}"
            )
        if install := get_manager().workspaces().install_hint(name):
            raise MissingBuilderError(f"workspace_type '{name}' is not installed{install};{valid}")
        raise RequestError(f"unknown workspace_type '{name}';{nearest(name, builders)}{valid}")

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Plan the build of the role's workspace, and set ``role.image`` to the image to be built.

        The role stays unchanged if it has no workspace, if the options require no build, or if the
        builder is not installed and the workspace is not required; this last case is a warning.

        Args:
            role: The role, which is changed.
            cfg: The options.
            build_cache: Plans of the submission's other roles, so that equal workspaces are planned
                once; this method adds to it.

        Raises:
            WorkspaceError: The workspace cannot be read.
            RequestError: The builder is unknown, or roles with different workspaces would use the
                same image or folder.
        """
        if not role.workspace:
            return
        kind = str(cfg.get("workspace_type") or self.default_workspace_type)
        base = base_image(role)
        key = (kind, base, role.workspace)
        if key not in build_cache:
            try:
                builder = self.workspace_builder(kind)
            except MissingBuilderError:
                if role.workspace.required:
                    raise
                import logging

                logging.getLogger(__name__).warning(
                    "the working directory is not uploaded; the job sees only the files in its"
                    " image. To upload it: %s. To omit this warning: --workspace=''",
                    get_manager().workspaces().installable[kind],
                )
                build_cache[key] = None
            else:
                build_cache[key] = builder.plan(base, role.workspace, cfg)
        plan = build_cache[key]
        if not isinstance(plan, BuiltReference):
            return
        other = build_cache.setdefault(("place", plan.image), role)
        if isinstance(other, Role) and other.workspace != role.workspace:
            raise RequestError(
                f"roles {other.name} and {role.name} have different workspaces, but both would use"
                f" {plan.image}"
            )
        role.image = plan.image
        role.metadata[METADATA_KEY] = {"type": kind, "base": base, "image": plan.image}
        setattr(role, _PLAN, plan)

    def build_pending(
        self,
        job: AppDryRunInfo[Any] | AppDef | Iterable[Role],
        cfg: Mapping[str, CfgVal] | None = None,
    ) -> dict[str, str]:
        """Build each image or folder that a dry run has planned, and push it for a remote job.

        Args:
            job: A dry run, its app, or roles. The digest of a finished build is written to the
                role's metadata, so that the build is not repeated.
            cfg: The options; None means the options of the dry run, or none if ``job`` is no dry
                run.

        Returns:
            Maps the name of each image or folder that was built to its digest, which is empty if
            the builder reports none.

        Raises:
            WorkspaceError: A build failed, or the workspace has changed since it was planned.
        """
        if isinstance(job, AppDryRunInfo):
            cfg = job.cfg if cfg is None else cfg
            roles: Iterable[Role] = job.app.roles if job.app else ()
        else:
            roles = job.roles if isinstance(job, AppDef) else job
        done: dict[str, str] = {}
        for role in roles:
            planned = planned_build(role)
            if planned is None or "digest" in planned:
                continue
            image = planned["image"]
            if image not in done:
                done[image] = self._build(role, planned, cfg or {})
            role.metadata[METADATA_KEY] = {**planned, "digest": done[image]}
        return done

    def _build(self, role: Role, planned: Mapping[str, str], cfg: Mapping[str, CfgVal]) -> str:
        import logging

        builder = self.workspace_builder(planned["type"])
        plan = getattr(role, _PLAN, None)
        if not isinstance(plan, BuiltReference) or plan.image != planned["image"]:
            plan = _replan(builder, role, planned, cfg)
        logging.getLogger(__name__).info(
            "role %s: building %s from %s", role.name, plan.image, role.workspace
        )
        built = builder.build(plan, cfg)
        if builder.remote and not built.ready:
            built = builder.push(plan, built, cfg)
        return built.digest

    @cached_property
    def _builders(self) -> dict[str, WorkspaceBuilder]:
        """The usable builders by name; a builder that cannot be loaded is a warning."""
        builders = {}
        for name in _installed_names():
            try:
                builder = load_builder(name)
            except PluginError as e:
                import logging

                logging.getLogger(__name__).warning("%s", e)
                continue
            if builder.output in self.workspace_outputs:
                builder.remote = self.workspace_remote
                builders[name] = builder
        return builders


def _installed_names() -> list[str]:
    return list(dict.fromkeys(["dir", *get_manager().workspaces().names()]))


def load_builder(name: str) -> WorkspaceBuilder:
    """Return a new builder.

    Args:
        name: The name of an installed builder.

    Raises:
        PluginError: The plugin cannot be loaded or returns another type, or several plugins use
            the name.
    """
    record = get_manager().workspaces().find(name)
    if record is None:  # no plugin replaces the builder of torchx-kit
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
            f"workspace builder '{name}' of {record.origin} is not a WorkspaceBuilder:"
            f" {builder!r:.99}"
        )
    return builder


def planned_build(role: Role) -> Mapping[str, str] | None:
    """Return the metadata of the build that was planned for the role's image, or None."""
    planned = role.metadata.get(METADATA_KEY)
    if not isinstance(planned, Mapping) or planned.get("image") != role.image:
        return None  # Nothing was planned, or the role's image was replaced since then.
    return planned if {"type", "base"} <= planned.keys() else None


def base_image(role: Role) -> str:
    """Return the image that a build adds the workspace to: the role's image before any build."""
    planned = planned_build(role)
    return role.image if planned is None else planned["base"]


def _replan(
    builder: WorkspaceBuilder, role: Role, planned: Mapping[str, str], cfg: Mapping[str, CfgVal]
) -> BuiltReference:
    """Plan a role's build again, because another process made the plan or a copy lost the plan."""
    if not role.workspace:
        raise WorkspaceError(
            f"role {role.name}: {role.image} was planned but not built, and the role has no"
            " workspace"
        )
    plan = builder.plan(planned["base"], role.workspace, cfg)
    if plan is None or plan.image != role.image:
        raise WorkspaceError(
            f"role {role.name}: the workspace or the options have changed since the dry run that"
            f" planned {role.image}; make a new dry run"
        )
    return plan
