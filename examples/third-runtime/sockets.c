// Sockets with keys: who may connect, and where the peers are.
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "wire.h"

enum { CLIENT = 63 };  // the clients' place among the keys

void *router, *zap;
const char* own_address;

static void* context;
static char public_key[41], secret_key[41];
static uint8_t keys[64][32];  // of `peers`
static int64_t largest_frame;

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
void check_key(void) {
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
