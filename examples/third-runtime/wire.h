// Connections with keys, greetings, and links that bring every frame once and in order (docs/wire.md).
#pragma once
#include <zmq.h>

#include "bundle.h"

typedef struct Message {
  struct Message* next;
  json_t* head;
  zmq_msg_t* frames;
  size_t count;
} Message;

typedef struct {  // of a ROUTER's other end
  uint8_t bytes[256];
  size_t size;  // 0: nobody
} Route;

typedef struct {
  char name[64], address[256];
  void *dealer, *monitor;                       // the connection that this device opened; NULL: none
  bool is_connected, is_welcome;                // over it
  uint64_t session, sent;                       // of the link to the peer; `sent`: the next number
  uint64_t first_kept;                          // number of the first of
  Message* kept;                                // frames that the peer has not acknowledged, their heads packed
  Route route;                                  // the connection that the peer opened
  uint64_t its_session, awaited, acknowledged;  // of the link from the peer
  double acknowledge_at;                        // 0: nothing to acknowledge
  Message* held;                                // frames whose turn it is not
  uint64_t incarnation;                         // as the peer told the source
  bool is_ready, is_prepared;                   // the same
} Peer;

extern Placement *placement, *next_placement;  // in force; prepared, or NULL
extern int64_t incarnation;
extern uint64_t first_request;  // requests below it are over
extern Peer peers[64];
extern int peer_count;
extern bool is_source;

double now(void);  // seconds
void open_wire(const char* listen, const char* address);
void poll_wire(int milliseconds);
Peer* find_peer(const char* name);  // NULL: it has no key
Peer* source(void);
int64_t epoch_of(const Placement* placement);
void connect_peers(const Placement* to);   // those that its programs send to, and the source
void move_peers(const json_t* addresses);  // to where they are now, HOST:PORT by device
bool links_stand(const Placement* to);
json_t* problem(const char* cause, const char* form, ...) __attribute__((format(printf, 2, 3)));
// Control messages: to the source, or of the source to a device. They take `head`; `most` bytes a frame.
void tell(Peer* peer, json_t* head);
void tell_bytes(Peer* peer, json_t* head, const void* bytes, size_t size, size_t most);
void answer(const Route* route, json_t* head);
void send_values(Peer* peer, json_t* head, const void** values, const size_t* sizes, size_t count);  // over the link
void count_from_0(void);  // links, since another placement is in force
void free_message(Message* message);

// Between sockets.c, fields.c and wire.c.
extern void *router, *zap;
extern const char* own_address;
void check_key(void);               // answers what libzmq asks about a key
bool is_known(const json_t* head);  // a kind that is taken here, and all of its fields fit

// What the rooms above do. ring.c and change.c:
void take_values(Peer* from, Message* message);             // the next frame of a link; takes it
void take_order(const char* kind, Message* message);        // of the source
void fail(int64_t request, bool earlier, json_t* problem);  // -1: all requests; tells the source
// source.c:
void take_report(Peer* from, const char* kind, Message* message);  // of a device
void take_wish(const Route* client, const char* kind, Message* message);
