"""Pure decisions: no clock, no network, no environment; everything is an argument."""
