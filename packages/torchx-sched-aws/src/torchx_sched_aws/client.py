"""boto3 clients, the translation of boto3's errors, and addresses in the AWS console.

The first request imports boto3. The AWS SDK reads region, profile, credentials and endpoint
(``AWS_ENDPOINT_URL``) from the usual environment variables and files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchx_kit.errors import translated_errors
from torchx_kit.jobs.submission import announce, withdraw
from torchx_specs.errors import BackendError, one_line
from torchx_specs.redaction import masked_text
from torchx_specs.version import __version__

#: Maximum attempts of a request, enough for about a minute of throttling with the SDK's backoff.
ATTEMPTS = 12
#: Maximum attempts of a request to an endpoint that does not answer.
UNREACHABLE_ATTEMPTS = 4
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
#: Maximum number of concurrent requests of a client.
CONNECTIONS = 20
#: Maximum rate of GetLogEvents requests. CloudWatch allows an account 25 per second in most regions
#: and 10 per second in others; this rate leaves some of them to other users of the account.
LOG_REQUESTS_PER_SECOND = 8.0

# After an error of the service itself, the request may have had an effect.
_UNCERTAIN = frozenset(
    {"InternalFailure", "InternalServerError", "ServerException", "ServiceUnavailable"}
)

# The consoles of partitions whose regions have no domain of their own.
_DOMAINS = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}

logger = logging.getLogger(__name__)


class AwsError(BackendError):
    """AWS refused a request, could not be reached, or is not configured.

    Attributes:
        code: AWS's error code, for example ``ClientException``; ``ParamValidation`` if the SDK
            refused the parameters; empty if there was no answer.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class NoCredentialsError(AwsError):
    """No usable credentials are configured, or AWS does not recognize them."""


class NoRegionError(AwsError):
    """No region is configured."""


class ExpiredCredentialsError(AwsError):
    """The credentials have expired, or cannot be renewed."""


class AccessDeniedError(AwsError):
    """The credentials lack a permission."""


class ThrottledError(AwsError):
    """AWS throttled every attempt of a request."""


class UnreachableError(AwsError):
    """The endpoint does not answer."""


class RateLimit:
    """Limits the rate of requests, but allows a burst of one second's requests. Thread-safe.

    Args:
        rate: Maximum number of requests per second.
        clock: Function that returns a time in seconds.
        sleep: Function that waits for a number of seconds.
    """

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval = 1 / rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # Each request reserves one interval, and may start up to a second before the end of that
        # interval. This is the end of the last reserved interval.
        self._booked = 0.0

    def wait(self) -> None:
        """Wait until the next request is due. Threads are served in the order of their calls."""
        with self._lock:
            now = self._clock()
            self._booked = max(self._booked, now) + self._interval
            pause = self._booked - now - 1.0
        if pause > 0:
            self._sleep(pause)


class Clients:
    """The boto3 clients of one scheduler, thread-safe.

    Args:
        given: Clients to use instead of new ones, by service name.
        config: Arguments of the SDK's ``Config``, in place of the defaults of this class.

    Attributes:
        log_requests: The rate limit of requests for log events, which all replicas share.
    """

    def __init__(self, given: Mapping[str, Any] | None = None, **config: Any) -> None:
        self._given = {name: client for name, client in (given or {}).items() if client is not None}
        self._config = config
        self._made: dict[str, Any] = {}
        self._session: Any = None
        self._lock = threading.RLock()
        self.log_requests = RateLimit(LOG_REQUESTS_PER_SECOND)

    def client(self, service: str) -> Any:
        """Return the client of a service (``batch``, ``logs`` ...); the first call creates it.

        Raises:
            AwsError: No region is configured, or the configured profile does not exist.
        """
        with self._lock:
            client = self._given.get(service) or self._made.get(service)
            if client is None:
                with aws_errors(f"reach {service}"):
                    client = self._new(service)
                self._made[service] = client
            return client

    def call(
        self,
        service: str,
        operation: str,
        action: str,
        expected: Callable[[AwsError], bool] | None = None,
        **parameters: Any,
    ) -> Any:
        """Make a request, and return the answer.

        Args:
            service: Name of the service, such as ``batch``.
            operation: Name of the client's method, such as ``describe_jobs``.
            action: Text after "cannot" in error messages, such as "list the job queues".
            expected: Returns whether an error is no error for the caller. The result is then None.
            **parameters: The parameters of the request.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        with aws_errors(action, expected):
            return getattr(self.client(service), operation)(**parameters)
        return None

    def items(
        self,
        service: str,
        operation: str,
        key: str,
        action: str,
        expected: Callable[[AwsError], bool] | None = None,
        **parameters: Any,
    ) -> Iterator[Any]:
        """Yield the items of all pages of a list; the other arguments are those of :meth:`call`.

        Args:
            service: Name of the service.
            operation: Name of the client's method.
            key: The field of a page with the items.
            action: Text after "cannot" in error messages.
            expected: Returns whether an error ends the list without an error.
            **parameters: The parameters of the requests.

        Raises:
            AwsError: AWS refused a request or did not answer.
        """
        with aws_errors(action, expected):
            for page in self.client(service).get_paginator(operation).paginate(**parameters):
                yield from page[key]

    def close(self) -> None:
        """Close the connections, except for clients that were passed to the constructor.

        The next request makes a new client, which reads the credentials again.
        """
        with self._lock:
            made, self._made, self._session = self._made, {}, None
        for client in made.values():
            with contextlib.suppress(Exception):
                client.close()

    def session(self) -> Any:
        """Return the session of all clients, which has the credentials and the services' models."""
        from boto3.session import Session

        self._session = self._session or Session()
        return self._session

    def _new(self, service: str) -> Any:
        from botocore.config import Config

        # In the SDK, these settings would override the user's environment variables, so leave out
        # a setting whose variable is set.
        settings = (
            ("AWS_RETRY_MODE", "mode", "adaptive"),
            ("AWS_MAX_ATTEMPTS", "total_max_attempts", ATTEMPTS),
        )
        retries = {name: value for key, name, value in settings if key not in os.environ}
        config = {
            "retries": retries or None,
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _READ_SECONDS,
            "max_pool_connections": CONNECTIONS,
            "user_agent_extra": f"torchx/{__version__}",
            **self._config,
        }
        client = self.session().client(service, config=Config(**config))
        client.meta.events.register_first(f"needs-retry.{service}", _give_up_unreachable)
        return client


def _give_up_unreachable(
    attempts: int = 0, caught_exception: Exception | None = None, **_: Any
) -> None:
    """End the SDK's retries early if the endpoint is unreachable.

    Raises:
        Exception: The SDK's connection error, after ``UNREACHABLE_ATTEMPTS`` attempts.
    """
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

    if attempts >= UNREACHABLE_ATTEMPTS and isinstance(
        caught_exception, (ConnectTimeoutError, EndpointConnectionError)
    ):
        raise caught_exception


@contextlib.contextmanager
def aws_errors(action: str, expected: Callable[[AwsError], bool] | None = None) -> Iterator[None]:
    """Translate the SDK's errors in the ``with`` block to :class:`AwsError`.

    Args:
        action: Text after "cannot" in error messages, for example "list the job queues".
        expected: Returns whether to log an error instead of raising it.

    Raises:
        AwsError: AWS refused the request or did not answer.
    """
    try:
        with translated_errors(lambda error: translate_error(error, action)):
            yield
    except AwsError as e:
        if expected is None or not expected(e):
            raise
        logger.debug("%s", e)


def is_denied(error: AwsError) -> bool:
    """Return whether the credentials lack a permission."""
    return isinstance(error, AccessDeniedError)


def is_client_error(error: AwsError) -> bool:
    """Return whether Batch refused a request, for example because an object is missing."""
    return error.code == "ClientException"


@contextlib.contextmanager
def announced(app_id: str) -> Iterator[None]:
    """Announce an app, and withdraw it if AWS refuses the request that the body makes.

    See :mod:`torchx_kit.jobs.submission`.
    """
    announce(app_id)
    try:
        yield
    except AwsError as e:
        if not isinstance(e, UnreachableError) and e.code not in _UNCERTAIN:
            withdraw()
        raise


# AWS's error codes, and the names of the SDK's own errors, with the error's class and text.
_ERRORS: tuple[tuple[frozenset[str], type[AwsError], str], ...] = (
    (
        frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"}),
        ExpiredCredentialsError,
        (
            "cannot {action}: the AWS credentials have expired ({text});"
            " renew them, for example with `aws sso login`"
        ),
    ),
    (
        frozenset(
            {
                *("InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure"),
                *("SignatureDoesNotMatch", "InvalidSignatureException"),
                "MissingAuthenticationToken",
            }
        ),
        NoCredentialsError,
        (
            "cannot {action}: AWS does not accept the credentials ({text});"
            " check AWS_PROFILE and the access key"
        ),
    ),
    (
        frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}),
        AccessDeniedError,
        "cannot {action}: access denied: {text}",
    ),
    (
        frozenset(
            {
                *("Throttling", "ThrottlingException", "ThrottledException", "SlowDown"),
                *("RequestLimitExceeded", "RequestThrottled", "RequestThrottledException"),
                "TooManyRequestsException",
            }
        ),
        ThrottledError,
        "cannot {action}: AWS throttles the requests ({text}); try again later",
    ),
    (
        frozenset({"NoRegionError"}),
        NoRegionError,
        (
            "cannot {action}: no AWS region is configured;"
            " set AWS_DEFAULT_REGION, or region in ~/.aws/config"
        ),
    ),
    (
        frozenset({"ProfileNotFound"}),
        NoCredentialsError,
        (
            "cannot {action}: {text};"
            " set AWS_PROFILE to a profile that `aws configure list-profiles` shows"
        ),
    ),
    (
        frozenset({"NoCredentialsError"}),
        NoCredentialsError,
        (
            "cannot {action}: no AWS credentials are configured;"
            " run `aws configure` or `aws sso login`, or set"
            " AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ),
    ),
    (
        frozenset({"UnauthorizedSSOTokenError", "SSOTokenLoadError"}),
        ExpiredCredentialsError,
        "cannot {action}: {text}; run `aws sso login`",
    ),
    (
        frozenset({"TokenRetrievalError", "CredentialRetrievalError"}),
        ExpiredCredentialsError,
        "cannot {action}: the AWS credentials cannot be renewed ({text})",
    ),
    (
        frozenset({"PartialCredentialsError"}),
        NoCredentialsError,
        "cannot {action}: the AWS credentials are incomplete ({text})",
    ),
    (
        frozenset({"HTTPClientError", "ConnectionError"}),
        UnreachableError,
        (
            "cannot {action}: AWS did not answer ({text});"
            " check the network, the region and AWS_ENDPOINT_URL{endpoint}"
        ),
    ),
)


def translate_error(error: Exception, action: str) -> AwsError | None:
    """Return the AwsError for an error of the SDK, or None for any other error."""
    from botocore import exceptions as sdk

    text, code = one_line(error), ""
    if isinstance(error, sdk.ClientError):
        answer = error.response.get("Error") or {}
        code = str(answer.get("Code") or "")
        text = one_line(answer.get("Message") or error)
        names = {"AccessDenied" if "is not authorized to" in text else code, code}
    elif isinstance(error, sdk.BotoCoreError):
        names = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, sdk.ParamValidationError):
            code = "ParamValidation"
    else:
        return None
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    shown = f" ({masked_text(endpoint)})" if endpoint else ""
    known = ((kind, sentence) for found, kind, sentence in _ERRORS if names & found)
    kind, sentence = next(known, (AwsError, "cannot {action}: {text}"))
    return kind(sentence.format(action=action, text=text, endpoint=shown), code)


def console_url(arn: str, service: str, page: str) -> str:
    """Return the address of a page in the console of an object's partition and region.

    >>> console_url("arn:aws-cn:batch:cn-north-1:1:job/id", "batch", "jobs/detail/id")
    'https://console.amazonaws.cn/batch/home?region=cn-north-1#jobs/detail/id'

    Args:
        arn: ARN of the object.
        service: Name of the service in the address, such as ``batch``.
        page: The part of the address after ``#``.
    """
    partition, _, region = arn.split(":")[1:4]
    domain = _DOMAINS.get(partition, f"{region}.console.aws.amazon.com")
    return f"https://{domain}/{service}/home?region={region}#{page}"
