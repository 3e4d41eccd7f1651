"""The passes, one a file; what a pass is stands in `partc.pipeline.contract`."""
