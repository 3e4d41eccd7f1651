"""The per-device artifact: weights in, manifests, files and keys out."""
