"""Endpoint of a ring: OpenAI's HTTP API, its metrics, and a page.

```
app        routes; requests are admitted, answered, streamed, cancelled
├── access     API keys, hosts, size and time of bodies
├── browsers   origins of web pages, preflights, the page's token
├── bodies     JSON bodies → what is asked for; what is not there is refused in words
├── fields     fields of other servers and of OpenAI that are not there, and their neutral values
├── prompts    tokens of prompts: what a model takes, room for an answer
├── template   chat messages → the text of a prompt
├── renderers  the processes that render chat templates, in two lanes
├── render     one of these processes
├── embedding  texts → vectors
├── pooling    the vectors of a text's tokens → the one of the text
├── generation  one request for text on its way: its jobs, its answers, their stream
├── job        one sequence at a ring
├── answer     tokens → text, stop strings, the reason of the end
├── replies    the shapes of answers and chunks
├── errors     errors as clients get them
├── moves      moves of sub-modules that a client asks for
├── metrics    counters in Prometheus' text format
├── ring_metrics    figures of rings and devices there
├── request_log, ring_log    lines of the log: how requests ended, what happened to rings
├── live       the state of the ring, for page.html
├── rings      the rings behind an endpoint, and which of them gets a request
└── ring       the thread that owns the client of the ring
server     the process: sockets, TLS, signals
connections    sockets that listen; how long a connection may say nothing
```

Everything but the ring's thread, the templates' process and tokenising runs in one event loop, so no locks are needed,
and `/health` never waits for the ring.
"""
