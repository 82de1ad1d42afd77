"""What runs inside a job."""
