#include "wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES = 256 };  // of a message at most

Placement *placement, *next_placement;
int64_t incarnation;
uint64_t first_request;
Peer peers[64];
int peer_count;
bool is_source;

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

Peer* find_peer(const char* name) {
  for (Peer* peer = peers; peer < peers + peer_count; ++peer)
    if (strcmp(peer->name, name) == 0) return peer;
  return NULL;
}

Peer* source(void) { return find_peer(txt(placement->json, "source")); }

int64_t epoch_of(const Placement* of) { return num(of->json, "epoch"); }

json_t* problem(const char* cause, const char* form, ...) {
  char words[512];
  va_list values;
  va_start(values, form);
  vsnprintf(words, sizeof words, form, values);
  va_end(values);
  json_t* made = say("{'cause': '%s', 'where': '%s', 'hint': null}", cause, device);
  json_object_set_new(made, "message", json_string(words) ?: json_string("a message in no UTF-8"));
  return made;
}

// ---- messages that go out

void free_message(Message* message) {
  for (size_t i = 0; message && i < message->count; ++i) zmq_msg_close(&message->frames[i]);
  if (message) json_decref(message->head), free(message->frames), free(message);
}

static void add_frame(Message* message, const void* bytes, size_t size) {
  zmq_msg_t* frame = &message->frames[message->count++];
  zmq_msg_init_size(frame, size);
  if (size) memcpy(zmq_msg_data(frame), bytes, size);
}

static Message* message_of(json_t* head, size_t frames) {  // takes `head`; with room for so many frames
  Message* message = calloc(1, sizeof *message);
  Buffer bytes = {0};
  pack(&bytes, head);
  message->frames = calloc(frames + 1, sizeof *message->frames);
  add_frame(message, bytes.data, bytes.size);
  json_decref(head), free(bytes.data);
  return message;
}

// Sends copies of the frames, which share their bytes; nothing waits.
static void transmit(void* socket, const Route* route, const Message* message) {
  if (route && zmq_send(socket, route->bytes, route->size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) return;
  for (size_t i = 0; i < message->count; ++i) {
    zmq_msg_t copy;
    zmq_msg_init(&copy), zmq_msg_copy(&copy, &message->frames[i]);
    if (zmq_msg_send(&copy, socket, ZMQ_DONTWAIT | (i + 1 < message->count ? ZMQ_SNDMORE : 0)) < 0)
      zmq_msg_close(&copy);
  }
}

void answer(const Route* route, json_t* head) {
  Message* message = message_of(head, 0);
  if (route->size) transmit(router, route, message);
  free_message(message);
}

void tell_bytes(Peer* peer, json_t* head, const void* bytes, size_t size, size_t most) {
  Message* message = message_of(head, 1 + size / most);
  for (size_t from = 0; from < size; from += most)
    add_frame(message, (const uint8_t*)bytes + from, size - from < most ? size - from : most);
  if (is_source && peer->route.size) transmit(router, &peer->route, message);
  if (!is_source && peer->is_connected) transmit(peer->dealer, NULL, message);
  free_message(message);
}

void tell(Peer* peer, json_t* head) { tell_bytes(peer, head, NULL, 0, 1); }

static void reply(Peer* to, const Route* route, json_t* head) {  // over the connection that the question came over
  if (!to) {
    answer(route, head);
    return;
  }
  Message* message = message_of(head, 0);
  transmit(to->dealer, NULL, message), free_message(message);
}

static void greet(Peer* peer) {
  reply(peer, NULL,
        say("{'kind': 'hello', 'v': 2, 'name': '%s', 'session': %ld, 'plan': '0x%s', 'placement': '0x%s',"
            " 'epoch': %ld, 'incarnation': %ld, 'address': '%s', 'shares': true}",
            device, (int64_t)peer->session, txt(build, "plan_id"), txt(placement->json, "placement_id"),
            epoch_of(placement), incarnation, own_address));
}

// ---- links

static void drop(Message** list) {
  for (Message* next; *list; *list = next) next = (*list)->next, free_message(*list);
}

void send_values(Peer* peer, json_t* head, const void** values, const size_t* sizes, size_t count) {
  json_object_update_new(head, say("{'session': %ld, 'epoch': %ld, 'seq': %ld}", (int64_t)peer->session,
                                   epoch_of(placement), (int64_t)peer->sent++));
  Message** end = &peer->kept;
  while (*end) end = &(*end)->next;
  *end = message_of(head, count);
  for (size_t i = 0; i < count; ++i) add_frame(*end, values[i], sizes[i]);
  if (peer->is_welcome) transmit(peer->dealer, NULL, *end);
}

static void forget_below(Peer* peer, uint64_t next) {
  for (; peer->kept && peer->first_kept < next; ++peer->first_kept) {
    Message* kept = peer->kept;
    peer->kept = kept->next, free_message(kept);
  }
}

static void take_welcome(Peer* peer, const json_t* head) {
  const uint64_t next = (uint64_t)num(head, "next");
  const bool same = num(head, "epoch") == epoch_of(placement);
  if (same && (next < peer->first_kept || next > peer->sent)) {  // the peer has lost its memory: a new session
    drop(&peer->kept);
    peer->first_kept = peer->sent = 0, ++peer->session;
    greet(peer);
    return;
  }
  if (same) forget_below(peer, next);
  if ((uint64_t)num(head, "first_request") > first_request) first_request = (uint64_t)num(head, "first_request");
  peer->is_welcome = true;
  for (const Message* kept = peer->kept; kept; kept = kept->next) transmit(peer->dealer, NULL, kept);
}

static void acknowledge(Peer* peer) {
  peer->acknowledged = peer->awaited, peer->acknowledge_at = 0;
  answer(&peer->route, say("{'kind': 'ack', 'session': %ld, 'epoch': %ld, 'seq': %ld}", (int64_t)peer->its_session,
                           epoch_of(placement), (int64_t)peer->awaited));
}

// Hands on the frames whose turn it is; those of the placement that is prepared wait.
static void hand_on(Peer* peer) {
  for (Message** at = &peer->held; *at;) {
    Message* message = *at;
    const int64_t epoch = num(message->head, "epoch"), own = epoch_of(placement);
    const uint64_t seq = (uint64_t)num(message->head, "seq");
    const bool is_early = epoch == own ? seq > peer->awaited : next_placement && epoch == epoch_of(next_placement);
    if (is_early) {
      at = &message->next;
      continue;
    }
    *at = message->next, message->next = NULL;
    if (epoch == own && !peer->acknowledge_at) peer->acknowledge_at = now() + 0.1;
    if (epoch != own || seq < peer->awaited) {
      free_message(message);
      continue;
    }  // over, or a repetition
    ++peer->awaited;
    take_values(peer, message);
    at = &peer->held;
  }
  if (peer->awaited >= peer->acknowledged + 8) acknowledge(peer);
}

void count_from_0(void) {
  for (Peer* peer = peers; peer < peers + peer_count; ++peer)
    drop(&peer->kept), peer->first_kept = peer->sent = peer->awaited = peer->acknowledged = 0, peer->acknowledge_at = 0;
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) hand_on(peer);
}

static void take_data(Peer* peer, Message* message) {
  const uint64_t window = 72 + (8 + (uint64_t)limit("max_sequence")) * (uint64_t)limit("max_requests") * 8;
  const bool far = num(message->head, "epoch") == epoch_of(placement) &&
                   (uint64_t)num(message->head, "seq") > peer->awaited + window;
  if (far) fail(-1, false, problem("refused", "%s: a message that is out of the window", peer->name));
  if (far || (uint64_t)num(message->head, "session") != peer->its_session) {
    free_message(message);
    return;
  }
  message->next = peer->held, peer->held = message;
  hand_on(peer);
}

// ---- messages that come in

static void take_hello(const char* owner, const Route* route, const json_t* head) {
  Peer* peer = find_peer(owner);
  const bool is_client = is_source && strcmp(owner, "client") == 0;
  const bool differs = !is(placement->json, "placement_id", txt(head, "placement") + 2);
  const char* wrong = NULL;
  if (!is(head, "name", owner)) wrong = "another name than that of its key";
  else if (!peer && !is_client) wrong = "it does not connect to this device";
  else if (sub(head, "v") && num(head, "v") != 2) wrong = "another version of the wire";
  else if (strcmp(txt(head, "plan"), "0x") < 0 || !is(build, "plan_id", txt(head, "plan") + 2)) wrong = "another build";
  else if (peer && num(head, "epoch") == epoch_of(placement) && differs) wrong = "another placement of this build";
  if (wrong) {
    answer(route, json_pack("{ssso}", "kind", "refuse", "problem", problem("refused", "%s", wrong)));
    return;
  }
  if (peer) {
    if (peer->its_session != (uint64_t)num(head, "session")) peer->awaited = peer->acknowledged = 0, drop(&peer->held);
    peer->route = *route, peer->its_session = (uint64_t)num(head, "session");
  }
  answer(route,
         say("{'kind': 'welcome', 'name': '%s', 'incarnation': %ld, 'epoch': %ld, 'next': %ld, 'first_request': %ld,"
             " 'info': {'patience_s': 5.0}}",
             device, incarnation, epoch_of(placement), (int64_t)(peer ? peer->awaited : 0),
             is_source ? (int64_t)first_request : 0));
}

// A message over the connection that `owner` opened, or over the one that this device opened to `to`.
static void take_message(const char* owner, Peer* to, const Route* route, Message* message) {
  Peer* peer = to ? to : find_peer(owner);
  const json_t* head = message->head;
  const char* kind = txt(head, "kind");
  const bool is_client = !to && is_source && strcmp(owner, "client") == 0;
  const bool is_greeted =
      to || is_client ||
      (peer && peer->route.size == route->size && !memcmp(peer->route.bytes, route->bytes, route->size));
  if (!head && !to)
    answer(route,
           json_pack("{ssso}", "kind", "refuse", "problem", problem("refused", "a message that cannot be read")));
  if (!is_known(head)) {
    if (is_greeted && peer) fail(-1, false, problem("refused", "%s: a message that cannot be read", peer->name));
  } else if (!to && strcmp(kind, "hello") == 0) {
    take_hello(owner, route, head);
    if (is_source && peer) take_report(peer, kind, message);
  } else if (!is_greeted) {  // ignored
  } else if (strcmp(kind, "ping") == 0) {
    reply(to, route, say("{'kind': 'pong', 'token': %ld, 'computing': false, 'doing': ''}", num(head, "token")));
  } else if (is_client) {
    take_wish(route, kind, message);
  } else if (to && strcmp(kind, "welcome") == 0) {
    take_welcome(to, head);
  } else if (to && strcmp(kind, "refuse") == 0) {
    fprintf(stderr, "%s refuses: %s\n", to->name, txt(sub(head, "problem"), "message"));
    fail(-1, false, json_incref(sub(head, "problem")));
  } else if (to && strcmp(kind, "ack") == 0) {
    if ((uint64_t)num(head, "session") == to->session && num(head, "epoch") == epoch_of(placement))
      forget_below(to, (uint64_t)num(head, "seq"));
  } else if (!to && strcmp(kind, "data") == 0) {
    take_data(peer, message);
    return;
  } else if (strcmp(kind, "want") == 0) {  // there are none to have: whoever asked computes them
    json_t* rows =
        say("{'kind': 'rows', 'parts': 0, 'sequences': 0, 'state': '', 'row': 0, 'position': 0, 'values': []}");
    json_object_update_missing(rows, (json_t*)head);
    json_object_set(rows, "end", sub(head, "begin")), json_object_del(rows, "waits");
    reply(to, route, rows);
  } else if (is_source) {
    take_report(peer, kind, message);
  } else if (peer == source()) {
    take_order(kind, message);
  }
  free_message(message);
}

static void receive(void* socket, Peer* to) {
  for (zmq_msg_t first; zmq_msg_init(&first), zmq_msg_recv(&first, socket, ZMQ_DONTWAIT) >= 0; zmq_msg_close(&first)) {
    Route route = {.size = 0};
    if (!to) {
      memcpy(route.bytes, zmq_msg_data(&first), route.size = zmq_msg_size(&first));
      zmq_msg_recv(&first, socket, 0);
    }
    Message* message = calloc(1, sizeof *message);
    message->head = unpack(zmq_msg_data(&first), zmq_msg_size(&first));
    message->frames = calloc(FRAMES, sizeof *message->frames);
    char owner[64];
    snprintf(owner, sizeof owner, "%s", to ? to->name : zmq_msg_gets(&first, "User-Id") ?: "");
    for (bool more = zmq_msg_more(&first); more;) {
      zmq_msg_t* next = message->count < FRAMES ? &message->frames[message->count++] : &first;
      if (next == &first) json_decref(message->head), message->head = NULL;  // too many to be read
      else zmq_msg_init(next);
      zmq_msg_recv(next, socket, 0);
      more = zmq_msg_more(next);
    }
    take_message(owner, to, &route, message);
  }
}

static void watch_connection(Peer* peer) {
  for (zmq_msg_t event, at;
       zmq_msg_init(&event), zmq_msg_init(&at), zmq_msg_recv(&event, peer->monitor, ZMQ_DONTWAIT) >= 0;
       zmq_msg_close(&event), zmq_msg_close(&at)) {
    uint16_t kind;
    memcpy(&kind, zmq_msg_data(&event), sizeof kind);
    zmq_msg_recv(&at, peer->monitor, 0);
    if (peer->is_welcome && !is_source && peer != source())
      tell(source(), say("{'kind': 'unready', 'lost': '%s'}", peer->name));
    peer->is_connected = kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED, peer->is_welcome = false;
    if (peer->is_connected) greet(peer);
  }
}

void poll_wire(int milliseconds) {
  zmq_pollitem_t items[130] = {{zap, 0, ZMQ_POLLIN, 0}, {router, 0, ZMQ_POLLIN, 0}};
  int count = 2;
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) {
    if (!peer->dealer) continue;
    items[count++] = (zmq_pollitem_t){peer->monitor, 0, ZMQ_POLLIN, 0};
    items[count++] = (zmq_pollitem_t){peer->dealer, 0, ZMQ_POLLIN, 0};
  }
  zmq_poll(items, count, milliseconds);
  if (items[0].revents) check_key();
  receive(router, NULL);
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) {
    if (peer->dealer) watch_connection(peer), receive(peer->dealer, peer);
    if (peer->acknowledge_at && now() > peer->acknowledge_at) acknowledge(peer);
  }
}
