"""What a complete plan costs, counted on its loops: see `cost_of`."""

from schedules.estimate.plans import Cost, cost_of

__all__ = ["Cost", "cost_of"]
