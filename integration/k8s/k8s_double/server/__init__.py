"""The API server: requests, validation, defaults, patches, admission."""
