"""Finding and loading components."""
