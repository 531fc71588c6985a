"""The default scheduler: a program to an equal program and directives, by the pattern of each stage."""

from schedules.default.scheduler import default_schedule

__all__ = ["default_schedule"]
