// A third runtime for the devices of a ring, beside partc's two; written from docs/ alone. See README.md.
#include <getopt.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"

static void leave(int signal) {
  (void)signal;
  _Exit(0);
}

int main(int count, char** words) {
  static const struct option kOptions[] = {{"bundle", 1, 0, 'b'}, {"listen", 1, 0, 'l'}, {"peer", 1, 0, 'p'}, {0}};
  const char *path = NULL, *listen = NULL;
  char* others[64];
  int other_count = 0;
  for (int option; (option = getopt_long(count, words, "", kOptions, NULL)) != -1;) {
    if (option == 'b') path = optarg;
    else if (option == 'l') listen = optarg;
    else if (option == 'p' && other_count < 64 && strchr(optarg, '=')) others[other_count++] = optarg;
    else path = NULL, optind = count;
  }
  if (!path) return fputs("usage: runtime --bundle DIR [--listen HOST:PORT] [--peer NAME=HOST:PORT]…\n", stderr), 2;
  if (sodium_init() < 0) die("libsodium does not start");
  signal(SIGTERM, leave), signal(SIGINT, leave);
  incarnation = (int64_t)((uint64_t)randombytes_random() << 31 ^ randombytes_random());
  open_bundle(path);
  size_t size;
  const char* wrong;
  char* bytes = read_file("placement.json", &size);
  if (!(placement = read_placement(bytes, size, &wrong))) die("%s/placement.json: %s", path, wrong);
  free(bytes);
  const char *compiled = txt(sub(placement->json, "addresses"), device), *own = listen ? listen : compiled;
  if (!own[0]) die("no address; start with --listen HOST:PORT");
  is_source = is(placement->json, "source", device);
  open_kernels();
  open_wire(own, strncmp(own, "0.0.0.0:", 8) == 0 ? "" : own);
  for (int i = 0; i < other_count; ++i) {
    char* address = strchr(others[i], '=');
    *address = 0;
    Peer* peer = find_peer(others[i]);
    if (!peer) die("--peer %s: is no device that connects to this one", others[i]);
    snprintf(peer->address, sizeof peer->address, "%s", address + 1);
  }
  if (is_source) open_source();
  connect_peers(placement);
  fprintf(stderr, "%s listens at %s\n", device, own);
  for (;;) {
    poll_wire(50);
    advance();
    tick();
    if (is_source) tick_source();
  }
}
