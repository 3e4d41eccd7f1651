"""Deployment as text: what systemd or Kubernetes need to run the devices of a build, written from the build alone."""
