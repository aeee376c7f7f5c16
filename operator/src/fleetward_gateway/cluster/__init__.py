"""What the gateway watches in the cluster, and the view of it that requests see."""
