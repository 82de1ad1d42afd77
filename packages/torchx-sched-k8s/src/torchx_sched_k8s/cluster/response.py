"""The response to one request, read as it arrives."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import urllib3.exceptions

from torchx_specs.schedulers.closing import shut_down

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse


class Response:
    """A response whose body can be read only once.

    Args:
        response: The response of urllib3.
        lost: Called with the error if reading fails; returns the error to raise.
    """

    def __init__(
        self, response: BaseHTTPResponse, lost: Callable[[BaseException], Exception]
    ) -> None:
        self._response = response
        self._lost = lost
        self._complete = False

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        # a connection with unread data cannot be reused
        if self._complete:
            self._response.release_conn()
        else:
            self._response.close()

    def shut_down(self) -> None:
        """End the reading of the body in another thread; the response must not be closed."""
        shut_down(self._response)

    @property
    def data(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks(1 << 20))

    def chunks(self, size: int = 1 << 16) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Args:
            size: The largest piece, in bytes. If the server sends a chunked body, it has no
                effect: the server's chunks are yielded.

        Raises:
            LostConnectionError: The connection was lost.
        """
        try:
            response = self._response
            if response.headers.get("Transfer-Encoding") == "chunked":
                yield from response.read_chunked(decode_content=True)
            elif hasattr(response, "read1"):
                while chunk := response.read1(size):
                    yield chunk
            else:
                yield from response.stream(size)
            self._complete = True
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as e:
            raise self._lost(e) from e
