"""Parts of ``torchx run``: its JSON request, component errors, and following an app."""
