"""The default scheduler: a plan to a complete one, by the pattern of each stage."""

from schedules.default.machine import Machine, assuming
from schedules.default.scheduler import completed, stored
from schedules.default.thresholds import LOWEST

__all__ = ["LOWEST", "Machine", "assuming", "completed", "stored"]
