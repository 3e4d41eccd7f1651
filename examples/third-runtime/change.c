// Orders of the source: a placement is prepared, put in force or given up.
#include <stdlib.h>
#include <string.h>

#include "ring.h"

static bool was_ready, has_prepared;
static json_t* reached;  // requests of the change that is prepared

void adopt_next(void) {
  drop_steps();
  free_placement(placement);
  placement = next_placement, next_placement = NULL, was_ready = false;
  count_from_0();
}

static void take_commit(const json_t* head) {
  size_t i, k;
  json_t *resumption, *end;
  if (!next_placement || epoch_of(next_placement) != num(head, "epoch") || num(head, "incarnation") != incarnation)
    return;
  for (Request* slot = requests; slot < requests + SLOTS; ++slot) slot->is_over = true, slot->branch = 0;
  json_array_foreach(sub(head, "requests"), i, resumption) {  // the others are over
    const uint64_t request = (uint64_t)num(resumption, "request"), step = (uint64_t)num(resumption, "step");
    Request* slot = &requests[num(resumption, "slot") & (SLOTS - 1)];
    const json_t* ends = sub(resumption, "ends");  // of the parts of its prompt, for every sequence
    const size_t parts = json_array_size(ends);
    if (request < first_request) first_request = request;  // whatever `welcome` said
    if (slot->request == request) slot->is_over = false;
    if (slot->request != request || step == 0) continue;
    slot->step = step;
    json_array_foreach(json_array_get(ends, step < parts ? step - 1 : parts - 1), k, end) slot->positions[k & 63] =
        (uint64_t)json_integer_value(end) + (step > parts ? step - parts : 0);
  }
  adopt_next();
}

static void take_prepare(const Message* message) {
  const json_t* head = message->head;
  const int64_t epoch = num(head, "epoch"), known = next_placement ? epoch_of(next_placement) : 0;
  Buffer text = {0};
  const char* wrong;
  if (epoch <= epoch_of(placement) || epoch < known || json_array_size(sub(head, "requests")) > SLOTS) return;
  json_decref(reached), reached = json_incref(sub(head, "requests"));
  if (epoch == known) {
    has_prepared = has_prepared && !yes(head, "stands_still");
    return;
  }
  for (size_t i = 0; i < message->count; ++i)
    put(&text, zmq_msg_data((zmq_msg_t*)&message->frames[i]), zmq_msg_size(&message->frames[i]));
  free_placement(next_placement);
  next_placement = read_placement((const char*)text.data, text.size, &wrong), has_prepared = false;
  free(text.data);
  move_peers(sub(head, "addresses"));
  if (next_placement) connect_peers(next_placement);
  else
    tell(source(), json_pack("{sssIsIs[]so}", "kind", "prepared", "epoch", epoch, "incarnation", incarnation, "have",
                             "problem", problem("input", "%s", wrong)));
}

void take_order(const char* kind, Message* message) {
  const json_t* head = message->head;
  if (strcmp(kind, "close") == 0) close_request((uint64_t)num(head, "request"), yes(head, "report"));
  if (strcmp(kind, "shutdown") == 0) exit(0);
  if (strcmp(kind, "prepare") == 0) take_prepare(message);
  if (strcmp(kind, "commit") == 0) take_commit(head);
  if (strcmp(kind, "abort") == 0 && next_placement && epoch_of(next_placement) == num(head, "epoch"))
    free_placement(next_placement), next_placement = NULL;
  if (strcmp(kind, "addresses") == 0) move_peers(sub(head, "addresses"));
  if (strcmp(kind, "sense") == 0 && !yes(head, "ends"))
    tell(source(), say("{'kind': 'sensed', 'vitals': {'readings': {}}}"));
}

// The steps whose rows lie here, of the sub-modules that this device goes on to run.
static void tell_prepared(void) {
  json_t *have = json_array(), *request;
  size_t i;
  json_array_foreach(reached, i, request) {
    const Request* slot = &requests[num(request, "slot") & (SLOTS - 1)];
    const bool is_here =
        slot->opening && slot->request == (uint64_t)num(request, "request") && slot->step && !rewrites_states();
    for (const Line* line = placement->decode.lines;
         is_here && line < placement->decode.lines + placement->decode.count; ++line)
      for (const Line* next = next_placement->decode.lines;
           line->operation == RUN && next < next_placement->decode.lines + next_placement->decode.count; ++next)
        if (next->operation == RUN && strcmp(line->where, next->where) == 0)
          json_array_append_new(have, json_pack("[IsIb]", (int64_t)slot->request, line->where, (int64_t)slot->step, 0));
  }
  tell(source(), json_pack("{sssIsIso}", "kind", "prepared", "epoch", epoch_of(next_placement), "incarnation",
                           incarnation, "have", have));
  has_prepared = true;
}

void tick(void) {
  const bool is_ready = !is_source && links_stand(placement);
  uint64_t next_request = first_request;
  for (const Request* slot = requests; slot < requests + SLOTS; ++slot)
    if (slot->opening && slot->request >= next_request) next_request = slot->request + 1;
  if (is_ready && !was_ready)
    tell(source(), say("{'kind': 'ready', 'next_request': %ld, 'placement': '0x%s', 'epoch': %ld, 'incarnation': %ld}",
                       (int64_t)next_request, txt(placement->json, "placement_id"), epoch_of(placement), incarnation));
  was_ready = is_ready;
  if (!is_source && next_placement && !has_prepared && links_stand(next_placement)) tell_prepared();
}
