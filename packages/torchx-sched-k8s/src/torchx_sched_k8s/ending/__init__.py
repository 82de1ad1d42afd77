"""Cancel, withdraw and delete apps."""
