"""Engine processes that fail, hang, are left by their clients, or find no model."""
