"""Reaching AWS: one session, one client per service, and the SDK's errors in our words.

boto3 is imported when the first request is made. Region, profile, credentials and endpoint
(``AWS_ENDPOINT_URL``) are found as the SDK finds them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from torchx_kit.errors import translated_errors
from torchx_specs.errors import BackendError, one_line
from torchx_specs.redaction import masked_text
from torchx_specs.version import __version__

#: How often a request is sent at most: together with the SDK's growing pauses, about a minute of
#: throttling is waited out.
ATTEMPTS = 12
#: How often at most if nobody answers at all.
UNREACHABLE_ATTEMPTS = 4
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
#: Requests of one client at the same time.
CONNECTIONS = 20

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_UNKNOWN = frozenset(
    {
        *("InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure"),
        *("SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken"),
    }
)
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_THROTTLED = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException"),
        *("RequestLimitExceeded", "RequestThrottled", "RequestThrottledException", "SlowDown"),
    }
)


class AwsError(BackendError):
    """AWS refuses, or cannot be asked.

    Attributes:
        code: AWS's name for the error (``ClientException``), empty where it did not answer
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class NoCredentialsError(AwsError):
    """There are no credentials, or AWS does not know them."""


class NoRegionError(AwsError):
    """No region is configured."""


class ExpiredCredentialsError(AwsError):
    """The credentials were valid, and are no longer."""


class AccessDeniedError(AwsError):
    """The credentials do not allow it."""


class ThrottledError(AwsError):
    """AWS still refused for too many requests after all attempts."""


class UnreachableError(AwsError):
    """Nobody answers at the endpoint."""


class Clients:
    """The clients of one scheduler; may be used from several threads.

    Args:
        given: clients to use instead of new ones, by the name of their service
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        self._given = {name: client for name, client in (given or {}).items() if client is not None}
        self._made: dict[str, Any] = {}
        self._session: Any = None
        self._lock = threading.RLock()

    def client(self, service: str) -> Any:
        """Returns the client of a service (``batch``, ``logs``, ``sagemaker`` ...), the same each
        time.

        Raises:
            AwsError: no region, or a profile that does not exist
        """
        with self._lock:
            client = self._given.get(service) or self._made.get(service)
            if client is None:
                with aws_errors(f"reach {service}"):
                    client = self._new(service)
                self._made[service] = client
            return client

    @property
    def region(self) -> str:
        """The region of the clients, empty if there is none."""
        with self._lock:
            for client in (*self._given.values(), *self._made.values()):
                region = getattr(getattr(client, "meta", None), "region_name", None)
                if isinstance(region, str):
                    return region
            with aws_errors("find the region"):
                return str(self._boto3_session().region_name or "")

    def renew(self) -> None:
        """Forgets session and clients, so that the next request looks for credentials anew.

        Clients that were given stay.
        """
        with self._lock:
            self.close()

    def close(self) -> None:
        """Closes the connections; clients that were given stay open."""
        with self._lock:
            made, self._made, self._session = self._made, {}, None
        for client in made.values():
            with contextlib.suppress(Exception):
                client.close()

    def _boto3_session(self) -> Any:
        if self._session is None:
            from boto3.session import Session

            self._session = Session()
        return self._session

    def _new(self, service: str) -> Any:
        from botocore.config import Config

        retries: dict[str, Any] = {}
        # what the environment says stays; it would lose against what a client is given
        if "AWS_RETRY_MODE" not in os.environ:
            retries["mode"] = "adaptive"
        if "AWS_MAX_ATTEMPTS" not in os.environ:
            retries["total_max_attempts"] = ATTEMPTS
        config = Config(
            retries=retries or None,
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            user_agent_extra=f"torchx/{__version__}",
        )
        client = self._boto3_session().client(service, config=config)
        client.meta.events.register_first(f"needs-retry.{service}", _give_up_unreachable)
        return client


def _give_up_unreachable(
    attempts: int = 0, caught_exception: Exception | None = None, **_: Any
) -> None:
    """Ends the SDK's attempts early where there is nobody to be throttled by.

    Raises:
        Exception: the SDK's own, that there was no connection
    """
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

    if attempts >= UNREACHABLE_ATTEMPTS and isinstance(
        caught_exception, (ConnectTimeoutError, EndpointConnectionError)
    ):
        raise caught_exception


def aws_errors(action: str) -> AbstractContextManager[None]:
    """Raise the SDK's errors as ours, inside a ``with`` statement.

    Args:
        action: What is being done, as in "cannot <action>".

    Raises:
        AwsError: AWS refused the request or did not answer.
    """
    return translated_errors(lambda error: translated(error, action))


def translated(error: Exception, what: str) -> AwsError | None:
    """Returns one of the SDK's errors as ours, None if it is none of the SDK's."""
    from botocore import exceptions as sdk

    if isinstance(error, sdk.ClientError):
        return _of_answer(error, what)
    text = one_line(error)
    if isinstance(error, sdk.NoRegionError):
        return NoRegionError(
            f"cannot {what}: no AWS region; set AWS_DEFAULT_REGION, or region in ~/.aws/config"
        )
    if isinstance(error, sdk.ProfileNotFound):
        return NoCredentialsError(
            f"cannot {what}: {text}; AWS_PROFILE names it, aws configure list-profiles shows those"
            " there are"
        )
    if isinstance(error, sdk.NoCredentialsError):
        return NoCredentialsError(
            f"cannot {what}: no AWS credentials; run aws configure or aws sso login, or set"
            " AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if isinstance(error, (sdk.UnauthorizedSSOTokenError, sdk.SSOTokenLoadError)):
        return ExpiredCredentialsError(f"cannot {what}: {text}; run aws sso login")
    if isinstance(error, (sdk.TokenRetrievalError, sdk.CredentialRetrievalError)):
        return ExpiredCredentialsError(
            f"cannot {what}: the AWS credentials cannot be renewed ({text})"
        )
    if isinstance(error, sdk.PartialCredentialsError):
        return NoCredentialsError(f"cannot {what}: the AWS credentials are not complete ({text})")
    if isinstance(error, sdk.ParamValidationError):
        return AwsError(f"cannot {what}: {text}", "ParamValidation")
    if isinstance(error, (sdk.HTTPClientError, sdk.ConnectionError)):
        return UnreachableError(
            f"cannot {what}: no answer from AWS ({text}); is the network there, and are region"
            f" and AWS_ENDPOINT_URL{_endpoint()} right?"
        )
    if isinstance(error, sdk.BotoCoreError):
        return AwsError(f"cannot {what}: {text}")
    return None


def _endpoint() -> str:
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    return f" ({masked_text(endpoint)})" if endpoint else ""


def _of_answer(error: Any, what: str) -> AwsError:
    """Returns what AWS answered as our error; ``error`` is a ClientError."""
    answer = error.response.get("Error") or {}
    code = str(answer.get("Code") or "")
    said = one_line(answer.get("Message") or error)
    if code in _EXPIRED:
        return ExpiredCredentialsError(
            f"cannot {what}: the AWS credentials have expired ({said}); renew them, for instance by"
            " aws sso login",
            code,
        )
    if code in _UNKNOWN:
        return NoCredentialsError(
            f"cannot {what}: AWS does not accept the credentials ({said}); check AWS_PROFILE and"
            " the access key",
            code,
        )
    if code in _DENIED or "is not authorized to" in said:
        return AccessDeniedError(f"cannot {what}: access denied: {said}", code)
    if code in _THROTTLED:
        return ThrottledError(
            f"cannot {what}: AWS refuses more requests for now ({said}); try again later", code
        )
    return AwsError(f"cannot {what}: {said}", code)
