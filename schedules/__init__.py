"""Schedules: how a program is computed, apart from what it computes."""

from schedules.schedule import Loop, Schedule, StageView

__all__ = ["Loop", "Schedule", "StageView"]
