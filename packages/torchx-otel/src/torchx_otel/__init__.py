"""OpenTelemetry spans of the calls of TorchX's runner."""
