"""New files from templates: ``torchx plugins new`` and ``torchx components new``."""
