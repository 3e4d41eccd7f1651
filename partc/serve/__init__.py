"""Endpoint of a ring: OpenAI's HTTP API, its metrics, and a page.

```
app        routes; requests are admitted, answered, streamed, cancelled
├── access     API keys, hosts, size and time of bodies
├── bodies     JSON bodies → what is asked for; what is not there is refused in words
├── template   chat messages → the text of a prompt
├── render     the process that renders a chat template
├── embedding  texts → vectors
├── pooling    the vectors of a text's tokens → the one of the text
├── generation  one request for text on its way: its jobs, its answers, their stream
├── job        one sequence at a ring
├── answer     tokens → text, stop strings, the reason of the end
├── replies    the shapes of answers and chunks
├── errors     errors as clients get them
├── moves      moves of sub-modules that a client asks for
├── metrics    counters in Prometheus' text format
├── live       the state of the ring, for page.html
├── rings      the rings behind an endpoint, and which of them gets a request
└── ring       the thread that owns the client of the ring
server     the process: sockets, TLS, signals
```

Everything but the ring's thread, the templates' process and tokenising runs in one event loop, so no locks are needed,
and `/health` never waits for the ring.
"""
