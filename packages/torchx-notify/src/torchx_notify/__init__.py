"""Notifiers of ended jobs: webhooks and commands."""
