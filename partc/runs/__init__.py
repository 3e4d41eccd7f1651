"""Records of runs, and what devices and links really took in them."""
