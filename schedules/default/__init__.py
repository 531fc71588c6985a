"""The default scheduler: a plan to a complete one, by the pattern of each stage."""

from schedules.default.machine import Machine
from schedules.default.scheduler import completed, stored

__all__ = ["Machine", "completed", "stored"]
