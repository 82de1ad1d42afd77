"""The controllers: Jobs, operators, and the scheduler of pods."""
