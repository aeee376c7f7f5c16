"""The operator: observe, plan, execute, status."""
