"""Notifications of ended jobs: the configured notifiers, and sending in the background."""
