"""The commands that work inside a replica: ``exec``, ``shell``, ``forward`` and ``cp``."""
