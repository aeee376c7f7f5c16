"""One builder per Kubernetes object; each returns a plain dict that reads like its YAML."""
