"""Measurements on a device, for `partc profile`."""
