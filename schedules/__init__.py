"""Schedules: how a program is computed, apart from what it computes."""

from schedules.schedule import Schedule
from schedules.stage_view import Loop, StageView

__all__ = ["Loop", "Schedule", "StageView"]
