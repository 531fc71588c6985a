"""Reads turned around: index expressions as linear forms, inverted, and written back as gathers."""
