"""The only place that speaks with the Kubernetes API; it turns API errors into `tandem.errors`."""
