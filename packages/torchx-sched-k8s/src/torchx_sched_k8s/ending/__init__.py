"""Cancel and delete apps."""
