"""`partc profile`: figures of real devices, links and sub-modules, measured by real runners."""
