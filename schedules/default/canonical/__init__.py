"""Sums of products in one form, however they are spelled: see `parts.py`."""
