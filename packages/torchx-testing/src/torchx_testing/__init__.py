"""Conformance suites for TorchX schedulers, trackers and plugins, as a pytest plugin."""
