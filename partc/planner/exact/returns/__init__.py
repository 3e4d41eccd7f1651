"""Plans that may return to a device: the best one, and a bound on all of them.

EdgeShard's Eq. 2-6 and LinguaLinked's Eq. 5 let a device have several intervals of sub-modules. `partc.planner.exact`
finds the best plan with one interval per device; here is whether a plan that returns is better, and a bound that holds
for every plan. Where a model's head is tied to its embedding, returning may be the only way at all: the phone has both,
and the board the layers between them.

For a latency each message counts with its link. The busy times of a throughput leave out what a message costs its two
devices: 17 runs on three devices that promised 2 % more tokens made 30 % less on real processes. So devices.yaml has
`returns: auto`: any number for a latency; for a throughput one interval per device, unless no such plan fits.

file        what it does
space       the problem as arrays and lists
prices      bounds: a shortest path over intervals, in which the memory of a device has a price
busy        bounds of a throughput: the same with prices on busy times
labels      what labels have in common: the memory that they use, and the devices
latency     labels of a latency: sub-module by sub-module, with what may still arrive late
throughput  labels of a throughput: busy times of devices and links
sweep       one pass over all sub-modules, of all labels or of the best few
search      prices, then wider and wider sweeps
"""

from __future__ import annotations
