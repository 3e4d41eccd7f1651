#include "wire.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { FRAMES = 256, CLIENT = 63 };  // frames of a message at most; the clients' place among the keys

Placement *placement, *next_placement;
int64_t incarnation;
uint64_t first_request;
Peer peers[64];
int peer_count;
bool is_source;

static void *context, *router, *zap;
static char public_key[41], secret_key[41];
static uint8_t keys[64][32];  // of `peers`
static const char* own_address;
static int64_t largest_frame;

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

// ---- sockets

static void set(void* socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

static void* open_socket(int type) {
  void* socket = zmq_socket(context, type);
  set(socket, ZMQ_LINGER, 500), set(socket, ZMQ_SNDHWM, 0), set(socket, ZMQ_RCVHWM, 0);
  set(socket, ZMQ_HEARTBEAT_IVL, 2500), set(socket, ZMQ_HEARTBEAT_TIMEOUT, 5000), set(socket, ZMQ_HANDSHAKE_IVL, 5000);
  set(socket, ZMQ_RECONNECT_IVL, 100), set(socket, ZMQ_RECONNECT_IVL_MAX, 1000);
  set(socket, ZMQ_IMMEDIATE, 1);  // what a broken connection has not sent is lost: links repeat it
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest_frame, sizeof largest_frame);
  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_key, 41);
  if (type == ZMQ_ROUTER) set(socket, ZMQ_CURVE_SERVER, 1);
  else zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public_key, 41);
  return socket;
}

static void connect_peer(Peer* peer, const char* address) {
  char endpoint[300], key[41];
  if (peer->dealer) {
    if (strcmp(peer->address, address) == 0) return;
    snprintf(endpoint, sizeof endpoint, "tcp://%s", peer->address);
    zmq_disconnect(peer->dealer, endpoint);
  } else {
    peer->dealer = open_socket(ZMQ_DEALER), peer->monitor = zmq_socket(context, ZMQ_PAIR);
    zmq_setsockopt(peer->dealer, ZMQ_CURVE_SERVERKEY, zmq_z85_encode(key, keys[peer - peers], 32), 41);
    snprintf(endpoint, sizeof endpoint, "inproc://monitor-%s", peer->name);
    zmq_socket_monitor(peer->dealer, endpoint, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
    zmq_connect(peer->monitor, endpoint);
  }
  if (address != peer->address) snprintf(peer->address, sizeof peer->address, "%s", address);
  snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
  if (zmq_connect(peer->dealer, endpoint) != 0) die("%s: is no address of %s: HOST:PORT", address, peer->name);
}

static bool sends_to(const Placement* from, const char* name) {
  bool sends = is(from->json, "source", name);
  for (const Program* program = &from->prefill; program; program = program == &from->prefill ? &from->decode : NULL)
    for (const Line* line = program->lines; line < program->lines + program->count; ++line)
      sends = sends || (line->operation == SEND && strcmp(line->where, name) == 0);
  return sends;
}

void connect_peers(const Placement* to) {
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) {
    const char* address = *peer->address ? peer->address : txt(sub(to->json, "addresses"), peer->name);
    if (peer->dealer || !sends_to(to, peer->name)) continue;
    if (!*address) die("%s: has no address; start with --peer %s=HOST:PORT", peer->name, peer->name);
    connect_peer(peer, address);
  }
}

void move_peers(const json_t* addresses) {
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) {
    const char* address = txt(addresses, peer->name);
    if (*address && peer->dealer) connect_peer(peer, address);
    else if (*address) snprintf(peer->address, sizeof peer->address, "%s", address);
  }
}

bool links_stand(const Placement* to) {
  for (Peer* peer = peers; peer < peers + peer_count; ++peer)
    if (sends_to(to, peer->name) && !peer->is_welcome) return false;
  return true;
}

static json_t* read_keys(const char* name) {
  char path[4096];
  struct stat status;
  snprintf(path, sizeof path, "%s/keys/%s", folder, name);
  if (stat(path, &status) != 0) die("%s: is missing; `partc keys BUILD` makes it", path);
  if (status.st_mode & 077) die("%s: other users can read it; chmod 600 it", path);
  json_t* read = json_load_file(path, 0, NULL);
  if (!read) die("%s: is not JSON", path);
  return read;
}

void open_wire(const char* listen, const char* address) {
  json_t *own = read_keys("secret.key"), *others = read_keys("peers.json"), *item;
  const json_t* dims = sub(build, "dims");
  const char* name;
  char endpoint[300];
  snprintf(public_key, 41, "%s", txt(own, "public")), snprintf(secret_key, 41, "%s", txt(own, "secret"));
  json_object_foreach(others, name, item) {
    const int place = strcmp(name, "client") == 0 ? CLIENT : peer_count++;
    if (place > CLIENT || !zmq_z85_decode(keys[place], json_string_value(item)))
      die("keys/peers.json: '%s' is wrong", name);
    snprintf(peers[place].name, sizeof peers->name, "%s", name);
    peers[place].session = randombytes_random() * (uint64_t)randombytes_random() >> 1;
  }
  json_decref(own), json_decref(others);
  largest_frame = 65536 + 40 * limit("max_sequence") * limit("max_batch");  // a header with long prompts
  json_object_foreach(sub(build, "values"), name, item) {
    const int64_t bytes = (int64_t)bytes_of(item, (Dims){num(dims, "batch"), num(dims, "sequence")});
    largest_frame = bytes > largest_frame ? bytes : largest_frame;
  }
  own_address = address;
  context = zmq_ctx_new();
  zap = zmq_socket(context, ZMQ_REP);
  zmq_bind(zap, "inproc://zeromq.zap.01");  // before the socket that it guards
  router = open_socket(ZMQ_ROUTER);
  snprintf(endpoint, sizeof endpoint, "tcp://%s", listen);
  if (zmq_bind(router, endpoint) != 0) die("%s: cannot listen there: %s", listen, zmq_strerror(errno));
}

// ZAP: may a key connect, and whose is it? Frames: version, id, domain, address, identity, mechanism, key.
static void check_key(void) {
  static const uint8_t kNone[32];
  uint8_t parts[7][256];
  int sizes[7] = {0}, more = 1;
  size_t size = sizeof more;
  for (int i = 0; more; zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &size), i += i < 6)
    sizes[i] = zmq_recv(zap, parts[i], 256, 0);
  const char* name = NULL;
  for (int i = 0; i < 64 && sizes[6] == 32; ++i)
    if (memcmp(keys[i], parts[6], 32) == 0 && memcmp(keys[i], kNone, 32) != 0) name = peers[i].name;
  zmq_send(zap, "1.0", 3, ZMQ_SNDMORE), zmq_send(zap, parts[1], (size_t)sizes[1], ZMQ_SNDMORE);
  zmq_send(zap, name ? "200" : "400", 3, ZMQ_SNDMORE), zmq_send(zap, "", 0, ZMQ_SNDMORE);
  zmq_send(zap, name ? name : "", name ? strlen(name) : 0, ZMQ_SNDMORE), zmq_send(zap, "", 0, 0);
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

// Fields of what is taken: u whole number, f number, t text, b bool, l list, m map; a capital may be null, ? left out.
static const char* kFields[][2] = {
    {"hello", "v?u name:t session:u plan:t placement:t epoch:u incarnation:u address?t shares?b"},
    {"welcome", "name:t incarnation:u epoch:u next:u first_request?u info:m"},
    {"refuse", "problem:m"},
    {"data", "session:u epoch:u seq:u phase:t dims:m rows:l values:l open?l likely?l busy_s?F"},
    {"ack", "session:u epoch:u seq:u"},
    {"ping", "token?u"},
    {"want", "epoch:u request:u submodule:t begin:u end:u part:u waits:b"},
    {"addresses", "addresses:m"},
    {"close", "request:u report:b"},
    {"shutdown", ""},
    {"prepare", "placement:t epoch:u addresses:m holders:m requests:l stands_still:b"},
    {"commit", "placement:t epoch:u incarnation:u requests:l"},
    {"abort", "epoch:u problem:m"},
    {"sense", "ends?b"},
    {"ready", "next_request:u placement:t epoch:u incarnation:u"},
    {"unready", "lost:t"},
    {"fail", "request:U earlier:b problem:m"},
    {"prepared", "epoch:u incarnation:u have:l problem?M"},
    {"submit",
     "ticket:t prompts:l max_new_tokens:u sampling:m stop:l ignore_eos:b trace:b values:l known?l reuse?b drafts?b "
     "expected?l"},
    {"cancel", "ticket:t"},
    {"place", "ticket:t reason?t"},
    {"resume", "ticket:t from_step:u"},
    {"pong", "*"},
    {"rows", "*"},
    {"watch", "*"},
    {"timings", "*"},
    {"crossed", "*"},
    {"sensed", "*"},  // of no use here
};

static bool has_type(const json_t* value, char type) {
  const bool null = type < 'a' && json_is_null(value);
  switch (type | 32) {
    case 'u': return null || json_is_integer(value);
    case 'f': return null || json_is_number(value);
    case 't': return null || json_is_string(value);
    case 'b': return null || json_is_boolean(value);
    case 'l': return null || json_is_array(value);
    default: return null || json_is_object(value);
  }
}

static bool is_known(const json_t* head) {  // a kind that is taken here; of those all fields fit
  const char* fields = NULL;
  size_t count = 1;  // `kind`
  for (size_t i = 0; i < sizeof kFields / sizeof *kFields; ++i)
    if (is(head, "kind", kFields[i][0])) fields = kFields[i][1];
  if (fields && *fields == '*') return true;
  for (char name[64], mark, type; fields && sscanf(fields, " %63[a-z_]%c%c", name, &mark, &type) == 3;) {
    const json_t* value = sub(head, name);
    if (value ? !has_type(value, type) : mark == ':') return false;
    count += value != NULL;
    fields = strchr(fields + 1, ' ') ?: "";
  }
  return fields && count == json_object_size(head);
}

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
