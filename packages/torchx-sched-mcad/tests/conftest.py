"""Fixtures: a double of an API server."""

from __future__ import annotations

from kubernetes_api_double import api as api
