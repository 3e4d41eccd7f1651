"""Deployment from the build alone: text for systemd or Kubernetes, and phones that adb reaches."""
