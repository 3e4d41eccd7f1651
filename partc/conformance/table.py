"""All checks, in the order in which they are made: what others rest on comes first."""

from __future__ import annotations

from partc.conformance import folders, links, lives, rings
from partc.conformance.findings import Check

_ALL, _TOKENS = ("source", "middle", "last"), ("source", "last")
_BUNDLE, _WIRE = "bundle.md#", "wire.md#"
_LINK, _REQUEST = f"{_WIRE}a-link-exactly-once-in-order", f"{_WIRE}a-request"
_DATA, _CHANGES = f"{_WIRE}how-data-is-checked", f"{_WIRE}changes-of-placement"
CHECKS = (
    Check("options", "deployment.md#the-runner", "a wrong command line has exit code 2", folders.check_options),
    Check("end", "conformance.md#starting-a-runner", "it tells its address; it ends with its input", folders.check_end),
    Check("damage", f"{_BUNDLE}json", "a folder that was changed is refused with exit code 1", folders.check_damage),
    Check("hello", f"{_WIRE}connections", "a device says who it is and what it runs", links.check_hello),
    Check("link", _LINK, "values go on with their rows, types and numbers", links.check_values),
    Check("repeated", _LINK, "a frame that comes twice is taken once", links.check_repeated),
    Check("order", _LINK, "a frame that overtakes another one waits", links.check_order),
    Check("ack", _LINK, "what has arrived is acknowledged", links.check_ack),
    Check("resend", _LINK, "what was not acknowledged comes again", links.check_again),
    Check("strange", _LINK, "frames of other sessions and epochs are dropped", links.check_strange_frames),
    Check("closed", _REQUEST, "what comes late for a request that is over is ignored", links.check_closed),
    Check("ping", f"{_WIRE}faults", "`pong` has the number of `ping`", links.check_ping),
    Check("refused-data", _DATA, "data that breaks a rule ends requests with `fail`", links.check_refused_data),
    Check("jumps", _DATA, "a step follows the one before", links.check_jumps),
    Check("unreadable", f"{_WIRE}frames", "headers that break the rules of frames are refused", links.check_unreadable),
    Check("keys", f"{_WIRE}security", "an unknown key never gets through", links.check_keys),
    Check("names", f"{_WIRE}security", "nobody speaks in the name of another", links.check_names),
    Check("builds", f"{_WIRE}connections", "another build or placement is refused", links.check_builds),
    Check("version", f"{_WIRE}frames", "another version of the wire is refused", links.check_version),
    Check("large", f"{_WIRE}security", "a frame beyond the cap closes the connection", links.check_large),
    Check("values", f"{_BUNDLE}programs", "tokens, and the bits of all that crosses links", rings.check_values, _ALL),
    Check("batch", f"{_BUNDLE}programs", "sequences of unequal lengths in one request", rings.check_batch, _ALL),
    Check("parts", f"{_BUNDLE}programs", "prompts that go in parts", rings.check_parts, _ALL),
    Check("whole", f"{_BUNDLE}states", "states that each step rewrites", rings.check_whole, ("middle",)),
    Check("returning", f"{_BUNDLE}programs", "steps that come back to a device", rings.check_returning, _ALL),
    Check("full", f"{_BUNDLE}states", "an answer up to the last position", rings.check_full, _ALL),
    Check("together", _REQUEST, "requests in flight together", rings.check_together, _ALL),
    Check("again", _REQUEST, "a slot forgets its last request", rings.check_again, _ALL),
    Check("sampling", _REQUEST, "draws are those of seed and position", rings.check_sampling, _TOKENS),
    Check("likely", _REQUEST, "probabilities of likely tokens", rings.check_likely, _TOKENS),
    Check("ends", _REQUEST, "end tokens and the most tokens end an answer", rings.check_ends, _TOKENS),
    Check("cancel", _REQUEST, "a request that its client leaves", rings.check_cancel, _ALL),
    Check("timings", f"{_WIRE}messages", "every device reports the times of every token", rings.check_timings, _ALL),
    Check("requests", _REQUEST, "requests beyond the build are refused", rings.check_refusals, ("source",)),
    Check("given", "bundle.md", "builds that `--build` names", rings.check_given, ("source",)),
    Check("stopped", f"{_WIRE}faults", "a moment of standing still costs time", lives.check_stopped, ("middle",)),
    Check("own-death", _CHANGES, "it comes back without its memory", lives.check_own_death, ("middle", "last")),
    Check("other-death", _CHANGES, "another device comes back without its memory", lives.check_other_death, _ALL),
    Check("lost", f"{_WIRE}faults", "a device that stays away ends requests", lives.check_lost, _ALL),
)  # fmt: skip
