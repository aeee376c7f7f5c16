"""The gateway between dying engines and hostile clients."""
