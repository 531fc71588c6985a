"""Where stages are computed and kept: decided, and judged once all directives of a schedule are known."""
