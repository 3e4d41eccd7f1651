"""Moves of sub-modules between devices while a ring runs: when they pay, and the placement that follows.

The files in the order in which a move comes to be:

| file | content |
| --- | --- |
| `pieces.py` | the pieces of the graph, the devices that hold each, and the planning problem over them |
| `artifacts.py` | a build's folder: its pieces, and the placement of any stages that they allow |
| `speeds.py` | measured over planned seconds of every device, smoothed |
| `traffic.py` | tokens to come in a ring that serves |
| `windows.py` | windows of 32 steps, out of the states that a ring tells |
| `replan.py` | the best placement that the pieces allow, and the step towards it |
| `events.py` | events and decisions of the balancer |
| `pauses.py` | the time between two moves |
| `balancer.py` | the rule: when to move, when to go back; named states, no I/O, no clock |
| `order.py` | placements to ask for, and whoever decides on them |
| `ring.py` | the rule for a running ring: its states in, placements to ask for out |
| `homing.py` | the way back to the plan where devices share stages |
| `balancing.py` | the balancer beside the client of whoever holds a ring open |
| `by_hand.py` | a move that somebody asks for |

Sources: LinguaLinked 3.3 (movable sub-modules, Eq. 5 again at run time), whose text gives no trigger and whose code has
the call commented out; mesh-llm's `auto_balance.rs` (windows, cool-down, trial and roll-back, half steps); Petals'
`block_selection.py` (move only for a gain that others' noise does not make). `balancer.py` says how ours differs.
"""

from __future__ import annotations
