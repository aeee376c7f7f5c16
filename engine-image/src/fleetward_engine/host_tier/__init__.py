"""KV blocks in host memory: where what leaves the device waits, sealed, to be loaded again."""
