"""Sub-commands on submitted apps."""
