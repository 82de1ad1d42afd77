"""Names of the component linter in TorchX 0.7.0 and in its nightly releases."""

from __future__ import annotations

import argparse
import ast
from typing import Any

from torchx_specs.file_linter import (
    ArgTypeValidator,
    ComponentFunctionValidator,
    LinterMessage,
    ReturnTypeValidator,
)

TorchxFunctionValidator = ComponentFunctionValidator
TorchxFunctionArgsValidator = ArgTypeValidator


class TorchxReturnValidator(ReturnTypeValidator):
    """Checks that a component returns an AppDef."""

    def __init__(self) -> None:
        super().__init__("AppDef")


class ComponentFnVisitor(ast.NodeVisitor):
    """Checks the functions with one name in a module's syntax tree.

    Args:
        component_function_name: Name of the function to check.
        validators: The rules to check; by default, the rules for components.

    Attributes:
        linter_errors: The violations.
    """

    def __init__(
        self,
        component_function_name: str,
        validators: list[ComponentFunctionValidator] | None = None,
    ) -> None:
        self.component_function_name = component_function_name
        self.validators = (
            [ArgTypeValidator(), ReturnTypeValidator("AppDef")]
            if validators is None
            else validators
        )
        self.linter_errors: list[LinterMessage] = []
        self.visited_function = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Check a function if its name is ``component_function_name``."""
        if node.name != self.component_function_name:
            return
        self.visited_function = True
        for validator in self.validators:
            self.linter_errors += validator.validate(node)


TorchFunctionVisitor = ComponentFnVisitor


class TorchXArgumentHelpFormatter(
    argparse.RawDescriptionHelpFormatter,
    argparse.ArgumentDefaultsHelpFormatter,
    argparse.MetavarTypeHelpFormatter,
):
    """Formats argparse help with the raw description, defaults and types."""


def get_generic_type(arg: ast.expr) -> ast.expr | None:
    """Return ``Dict`` for ``Dict[str, int]``, or None if the annotation is not generic."""
    return arg.value if isinstance(arg, ast.Subscript) else None


def get_optional_type(arg: ast.expr) -> ast.expr | None:
    """Return ``T`` for ``Optional[T]``, ``T | None`` or ``None | T``; None for other types."""
    if isinstance(arg, ast.Subscript) and _name(arg.value) == "Optional":
        return arg.slice
    if isinstance(arg, ast.BinOp) and isinstance(arg.op, ast.BitOr):
        if _is_none(arg.right):
            return arg.left
        if _is_none(arg.left):
            return arg.right
    return None


def is_primitive(arg: ast.expr) -> bool:
    """Return True if the annotation is a plain name."""
    return isinstance(arg, ast.Name)


def _name(node: ast.expr) -> Any:
    return getattr(node, "id", getattr(node, "attr", None))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
