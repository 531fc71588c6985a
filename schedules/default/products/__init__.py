"""Sums of products: packed panels, and tiles of sums in registers."""
