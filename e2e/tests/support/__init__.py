"""What end-to-end tests share: the cluster, manifests, the gateway, the audit log."""
