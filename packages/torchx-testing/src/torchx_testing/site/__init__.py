"""The command ``torchx conformance``, which runs a suite on a user's site and writes a report."""
