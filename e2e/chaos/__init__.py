"""The product under fire in full: seeded, bounded, resumable, with one table at the end."""
