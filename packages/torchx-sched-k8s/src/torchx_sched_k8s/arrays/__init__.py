"""Many apps as one Indexed Job."""
