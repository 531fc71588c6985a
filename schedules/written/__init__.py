"""Schedules written down: as Python, as printed loops, as JSON."""
