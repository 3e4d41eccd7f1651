"""The per-device artifact: weights in; build.json, placement.json, files and keys out."""
