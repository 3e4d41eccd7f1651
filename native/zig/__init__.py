"""`make native`: partc-runner and libsodium, compiled by the zig of the extra `link`."""
