"""The default scheduler: a plan to a complete one, by the pattern of each stage."""

from schedules.default.rest import left_open
from schedules.default.scheduler import WHERE, Completion, completed, completion, stored
from schedules.machine import Machine, assuming
from schedules.thresholds import LOWEST

__all__ = ["LOWEST", "WHERE", "Completion", "Machine", "assuming", "completed", "completion", "left_open", "stored"]
