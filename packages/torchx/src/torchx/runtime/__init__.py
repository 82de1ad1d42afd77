"""Modules for programs that run in a job."""
