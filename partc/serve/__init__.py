"""Endpoint of a ring: OpenAI's HTTP API, its metrics, and a page.

```
app        routes; requests are admitted, answered, streamed, cancelled
├── access     API keys, hosts, size and time of bodies
├── bodies     JSON bodies → what is asked for; what is not there is refused in words
├── template   chat messages → the text of a prompt, in a process of its own
├── embedding  texts → vectors; `pooling` says how those of tokens become one
├── answer     tokens → text, stop strings, the reason of the end
├── replies    the shapes of answers and chunks
├── metrics    counters in Prometheus' text format
├── live       the state of the ring, for page.html
└── ring       the thread that owns the client of the ring
server     the process: sockets, TLS, signals
```

Everything but the ring's thread, the templates' process and tokenising runs in one event loop, so no locks are needed,
and `/health` never waits for the ring.
"""
