"""A runner for programs that use asyncio."""
