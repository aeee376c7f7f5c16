"""The hot path: a raw ASGI route in front of an aiohttp client, bytes in and bytes out."""
