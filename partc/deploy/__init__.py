"""Deployment from the build alone: text for systemd, Kubernetes or Ray, and phones that adb reaches."""
