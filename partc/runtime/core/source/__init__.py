"""What the source has besides: clients' requests, changes of placement, and the status of the ring.

```
inputs         what clients ask for, checked against the model; prompts in parts
job            one request at the source, through its states
drafts         what the next tokens of a request may be
guessing       when a step may begin with one of these
window         the guesses of a request that are under way
reading        the request that a message asks for
queue          all requests by their state
slots          slots of states, and the prompts whose rows they still have
guessed_steps  steps that begin with guesses, of all requests
sharing        steps that several requests share
patience       how long a step may take, and who is to blame
deadlines      what becomes of requests that have waited for too long
orphans        requests whose client is away
answers        messages to a client about its request
clients        all clients: what they are told, and what is kept for them
schedule       composes these: requests from `submit` to their answer
members        devices that are connected, and whether they know the placement in force
change         a change of placement
changes        the placement in force and the next one
watchers       those who watch the ring, and the rounds of questions to its devices
ring_monitor   the status of the ring
source         composes them
```
"""
