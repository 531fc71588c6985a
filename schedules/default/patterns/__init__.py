"""What is done with each other kind of stage: loops, lanes, lookups, scans, scatters."""
