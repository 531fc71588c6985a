"""The default scheduler: a plan to a complete one, by the pattern of each stage."""

from schedules.default.scheduler import completed, stored
from schedules.machine import Machine, assuming
from schedules.thresholds import LOWEST

__all__ = ["LOWEST", "Machine", "assuming", "completed", "stored"]
