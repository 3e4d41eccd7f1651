"""Back ends: each lowers the graph of a device and writes its files. `partc.pipeline.registry` names them."""
