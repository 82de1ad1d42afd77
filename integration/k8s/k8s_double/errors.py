"""Refusals as an API server writes them: Status objects."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A response that is not a success.

    Args:
        code: HTTP status code.
        reason: Reason of the Status, such as ``NotFound``.
        message: Message, as a real server writes it.
        details: Details of the Status.
        headers: Headers of the response, such as ``Retry-After``.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        found: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            found["reason"] = self.reason
        if self.details:
            found["details"] = self.details
        found["code"] = self.code
        return found


def qualified(plural: str, group: str) -> str:
    """Return a plural and its group, such as ``jobs.batch``; the core group is left out."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name} if name else {}
    if group:
        found["group"] = group
    found["kind"] = kind
    found.update(more)
    return found


def not_found(plural: str, group: str, name: str) -> ApiError:
    what = qualified(plural, group)
    return ApiError(404, "NotFound", f'{what} "{name}" not found', _details(name, group, plural))


def no_such_path() -> ApiError:
    """Return the response for a group, version or resource that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    what = qualified(plural, group)
    return ApiError(
        409, "AlreadyExists", f'{what} "{name}" already exists', _details(name, group, plural)
    )


def conflict(plural: str, group: str, name: str, why: str = "") -> ApiError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        _details(name, group, plural),
    )


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    what = qualified(plural, group)
    named = f'{what} "{name}"' if name else what
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", _details(name, group, plural))


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


#: An invalid field: the path of the field, the message ("Invalid value: ...") and the reason.
Cause = tuple[str, str, str]


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    """Return the refusal that lists every invalid field."""
    texts = [f"{field}: {message}" for field, message, _ in causes]
    told = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    listed = [{"reason": why, "message": message, "field": at} for at, message, why in causes]
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {told}',
        _details(name, group, kind, causes=listed),
    )


def required(field: str, detail: str = "") -> Cause:
    return field, f"Required value: {detail}" if detail else "Required value", "FieldValueRequired"


def invalid_value(field: str, value: object, detail: str) -> Cause:
    return field, f"Invalid value: {_shown(value)}: {detail}", "FieldValueInvalid"


def unsupported_value(field: str, value: object, supported: list[str]) -> Cause:
    known = ", ".join(f'"{item}"' for item in supported)
    return (
        field,
        f"Unsupported value: {_shown(value)}: supported values: {known}",
        "FieldValueNotSupported",
    )


def not_allowed(field: str, detail: str) -> Cause:
    return field, f"Forbidden: {detail}", "FieldValueForbidden"


def missing(field: str, value: object) -> Cause:
    return field, f"Not found: {_shown(value)}", "FieldValueNotFound"


def duplicate(field: str, value: object) -> Cause:
    return field, f"Duplicate value: {_shown(value)}", "FieldValueDuplicate"


def too_long(field: str, limit: int) -> Cause:
    return field, f"Too long: may not be more than {limit} bytes", "FieldValueTooLong"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
