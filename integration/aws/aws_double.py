"""An HTTP double of AWS: Batch, SageMaker training, Secrets Manager, and CloudWatch Logs.

The double speaks the services' protocols on a local port, checks every request and response against
botocore's service models, and runs the jobs as processes without images. The modules
``aws_double_batch`` and ``aws_double_sagemaker`` describe the behavior that they implement. Clients
use the double like any other endpoint::

    double = AwsDouble()
    double.batch.add_queue("default")
    os.environ.update(double.variables)
    ...
    double.close()
    double.check()  # raises if a request or a response did not fit the models

The command ``aws_double.py [--port PORT] [--queue NAME ...] [--fill JOBS]`` runs the double as a
process, which prints its address.
"""

from __future__ import annotations

import argparse
import socketserver
import threading
import time
import traceback
from collections import Counter, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aws_double_batch import Batch
from aws_double_logs import Logs
from aws_double_sagemaker import SageMaker
from aws_double_secrets import SecretsManager
from aws_double_wire import Call, ServiceError, ViolationError, encode_error, wire

REGION = "us-east-1"

#: Errors of all services, by kind and service: code, message and HTTP status. The service "" stands
#: for all services without an entry of their own.
ERRORS = {
    "throttling": {
        "batch": ("TooManyRequestsException", "Too Many Requests", 429),
        "": ("ThrottlingException", "Rate exceeded", 400),
    },
    "expired": {
        "": ("ExpiredTokenException", "The security token included in the request is expired", 403)
    },
}


@dataclass
class Fault:
    """A fault that the server injects into requests.

    Args:
        operation: Operation of the requests; ``*`` means all operations.
        error: Error response, a key of :data:`ERRORS`; empty for no error.
        times: Number of requests that have the fault.
        latency: Delay of the response, in seconds.
        key: Access key with which the requests are signed; empty means any key.
    """

    operation: str = "*"
    error: str = ""
    times: int = 1_000_000
    latency: float = 0.0
    key: str = ""


class AwsDouble:
    """The server, in threads of this process.

    Attributes:
        batch: The double of Batch.
        sagemaker: The double of SageMaker.
        logs: The double of CloudWatch Logs.
        secretsmanager: The double of Secrets Manager.
        faults: The faults to inject; tests append to this list.
        counts: Number of decoded requests by operation, including refused requests.
        calls: The last 10,000 requests that could be decoded.
        violations: Descriptions of requests and responses that do not fit the service models, and
            of errors in the double itself.
        most_at_once: Largest number of concurrent requests since the last :meth:`reset`.
    """

    def __init__(self, port: int = 0) -> None:
        self.logs = Logs()
        self.secretsmanager = SecretsManager()
        self.batch = Batch(self.logs, self.secretsmanager)
        self.sagemaker = SageMaker(self.logs)
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.calls: deque[Call] = deque(maxlen=10_000)
        self.violations: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._wire = wire()
        self._server = _Server(("127.0.0.1", port), _handler(self))
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that direct clients to the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "double",
            "AWS_SECRET_ACCESS_KEY": "double",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def reset(self) -> None:
        """Forget faults and counts; keep the jobs."""
        with self._lock:
            self.faults.clear()
            self.counts.clear()
            self.calls.clear()
            self.most_at_once = 0

    def close(self) -> None:
        """Stop the server and all its jobs."""
        self.batch.close()
        self.sagemaker.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def check(self) -> None:
        """Raise an error if there are :attr:`violations`."""
        assert not self.violations, self.violations

    def answer(
        self, method: str, target: str, headers: Any, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return the status, body and headers of a response."""
        service = "batch" if target.startswith("/v1/") else "json"
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            call = self._wire.decode(method, target, headers, body)
            service = call.service
            with self._lock:
                self.counts[call.name] += 1
                self.calls.append(call)
                fault = self._fault(call)
            if fault is not None:
                time.sleep(fault.latency)
                if fault.error:
                    raise _error(fault.error, call)
            operation = getattr(getattr(self, call.service), call.name, None)
            if operation is None:
                raise ViolationError(f"the double has no {call.service}.{call.name}")
            return 200, self._wire.encode(call, operation(call)), {}
        except ServiceError as e:
            return e.status, *encode_error(service, e)
        except ViolationError as e:
            self.violations.append(str(e))
            error = ServiceError("SerializationException", f"the double of AWS: {e}")
            return 400, *encode_error(service, error)
        except Exception:
            self.violations.append(traceback.format_exc())
            error = ServiceError("InternalFailure", "the double of AWS is broken")
            return 500, *encode_error(service, error)
        finally:
            with self._lock:
                self._at_once -= 1

    def _fault(self, call: Call) -> Fault | None:
        for fault in self.faults:
            fits = fault.operation in ("*", call.name) and fault.key in ("", call.key)
            if fits and fault.times > 0:
                fault.times -= 1
                return fault
        return None


def _error(kind: str, call: Call) -> ServiceError:
    known = ERRORS[kind]
    code, message, status = known.get(call.service, known[""])
    return ServiceError(code, message, status)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        # HTTPServer would look up the host's name
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection."""


def _handler(double: AwsDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer, headers = double.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)
            self.wfile.flush()

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def main() -> None:
    """Start a double with the queues in the arguments, and run until Ctrl-C or a signal."""
    parser = argparse.ArgumentParser(description="a double of AWS Batch and SageMaker")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--queue", action="append", default=[])
    parser.add_argument("--fill", type=int, default=0, help="ended jobs of each queue")
    options = parser.parse_args()
    double = AwsDouble(options.port)
    for name in options.queue:
        double.batch.add_queue(name)
        double.batch.fill(name, options.fill)
    print(f"a double of AWS: {double.url}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        double.close()


if __name__ == "__main__":
    main()
