"""Schedules: how a program runs, as data, apart from what it computes."""
