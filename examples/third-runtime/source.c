// What the source does besides: requests of clients, and the placement anew where a device has lost its memory.
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ring.h"

enum { WISHES = 256, MOST = 64, PARTS = 1024 };
static const double kRejoin = 60, kRepeat = 1;  // seconds: without progress; between questions

typedef struct {           // a request of a client; when it is over it is kept, for a client that asks again
  json_t* head;            // `submit`; NULL: there is none
  json_t *steps, *likely;  // tokens of each step, one a sequence; what is told with them, or null
  json_t* finish;          // of each sequence: [reason, last step], or null
  json_t* end;             // the last message; NULL: it is not over
  Route client;
  uint64_t request, number;  // while it runs: its number in the ring, else 0; its number here
  size_t slot, told, next;   // `told` steps are known to the client; `next` is computed
  int parts;                 // of its prompt
  double submitted, progress;
} Wish;

static Wish wishes[WISHES];
static uint64_t next_request, wish_count;
static int64_t highest_epoch;
static bool must_change;  // a device has lost its memory
static char* text;        // of the placement in force, or of the one that is prepared
static double asked_at;

static bool in_ring(const Peer* peer) {
  size_t i;
  json_t* name;
  json_array_foreach(sub(placement->json, "ring"), i,
                     name) if (strcmp(json_string_value(name), peer->name) == 0) return true;
  return false;
}

static size_t batch_of(const Wish* wish) { return json_array_size(sub(wish->head, "prompts")); }

static void tell_client(const Wish* wish, json_t* head) {
  json_object_set(head, "ticket", sub(wish->head, "ticket"));
  answer(&wish->client, head);
}

static void end_wish(Wish* wish, json_t* end) {
  for (Peer* peer = peers; wish->request && peer < peers + peer_count; ++peer)
    if (in_ring(peer)) tell(peer, say("{'kind': 'close', 'request': %ld, 'report': false}", (int64_t)wish->request));
  if (wish->request) close_request(wish->request, false);
  wish->request = 0, wish->end = end;
  tell_client(wish, json_copy(end));
}

static json_t* error_of(json_t* problem) { return json_pack("{ssso}", "kind", "error", "problem", problem); }

void end_requests(int64_t request, bool earlier, const json_t* why) {
  for (Wish* wish = wishes; wish < wishes + WISHES; ++wish) {
    const int64_t own = (int64_t)wish->request;
    if (own && (request < 0 || own == request || (earlier && own < request)))
      end_wish(wish, error_of(json_deep_copy(why)));
  }
}

// ---- steps

// A step: `lengths` tokens of each sequence from `positions` on, in rows of `sequence` tokens.
static void run_wish(Wish* wish, const char* phase, size_t step, const uint64_t* positions, const uint64_t* lengths,
                     int64_t sequence, int64_t* tokens) {
  const size_t first = wish->slot * (size_t)limit("max_batch");
  json_t* head = say("{'phase': '%s', 'dims': {'batch': %ld, 'sequence': %ld}, 'rows': [], 'open': []}", phase,
                     (int64_t)batch_of(wish), sequence);
  for (size_t i = 0; i < batch_of(wish); ++i)
    json_array_append_new(sub(head, "rows"), say("[%ld, %zu, %zu, %ld, %ld, 0]", (int64_t)wish->request, first + i,
                                                 step, (int64_t)positions[i], (int64_t)lengths[i]));
  if (step == 0)
    json_array_append_new(sub(head, "open"), json_pack("{sIsO}", "request", (int64_t)wish->request, "sampling",
                                                       sub(wish->head, "sampling")));
  begin_step(head, "input_ids", tokens);
}

// Divides a prompt into steps that there is code for (docs/bundle.md, "Long prompts in parts"); what they cost.
static int64_t divide(int64_t length, const json_t* sizes, int64_t* parts, int* count) {
  size_t larger = 0;  // the first size that is
  int64_t cost = 0, left = length;
  const int before = *count;
  while (larger < json_array_size(sizes) && num_at(json_array_get(sizes, larger), 0) <= length) ++larger;
  const json_t *fits = json_array_get(sizes, larger ? larger - 1 : 0), *next = json_array_get(sizes, larger);
  for (; larger && left >= num_at(fits, 0) && *count < PARTS - 1; left -= num_at(fits, 0))
    parts[(*count)++] = num_at(fits, 0), cost += num_at(fits, 1);
  if (left && left < length) cost += divide(left, sizes, parts, count);
  if (left && next && (left == length || num_at(next, 1) <= cost))  // filled up
    *count = before, parts[(*count)++] = length, cost = num_at(next, 1);
  return cost;
}

static void begin_wish(Wish* wish) {
  const json_t *prompts = sub(wish->head, "prompts"), *sizes = sub(sub(build, "model"), "prompt_steps");
  const size_t batch = batch_of(wish);
  const int64_t chunk = limit("prompt_chunk");
  int64_t longest = 0, parts[PARTS];
  uint64_t positions[MOST] = {0}, lengths[MOST];
  for (size_t i = 0; i < batch; ++i) {
    lengths[i] = json_array_size(json_array_get(prompts, i));
    longest = (int64_t)lengths[i] > longest ? (int64_t)lengths[i] : longest;
  }
  wish->request = next_request++, wish->next = 0, wish->parts = 0, wish->progress = now();
  if (batch == 1 && json_array_size(sizes)) divide(longest, sizes, parts, &wish->parts);
  else {
    wish->parts = batch == 1 && chunk ? (int)((longest + chunk - 1) / chunk) : 1;
    for (int i = 0; i < wish->parts; ++i) parts[i] = longest * (i + 1) / wish->parts - longest * i / wish->parts;
  }
  for (int part = 0; part < wish->parts; positions[0] += lengths[0], ++part) {
    int64_t* tokens = calloc(batch * (size_t)parts[part], sizeof *tokens);
    if (wish->parts > 1) lengths[0] = (uint64_t)parts[part];
    for (size_t i = 0; i < batch; ++i)
      for (size_t k = 0; k < lengths[i]; ++k)
        tokens[i * (size_t)parts[part] + k] = num_at(json_array_get(prompts, i), positions[i] + k);
    run_wish(wish, part + 1 < wish->parts ? "chunk" : "prefill", (size_t)part, positions, lengths, parts[part], tokens);
  }
}

static bool has(const json_t* list, int64_t token) {
  for (size_t i = 0; i < json_array_size(list); ++i)
    if (num_at(list, i) == token) return true;
  return false;
}

static void tell_step(const Wish* wish, size_t step) {
  json_t* head = say("{'kind': 'token', 'step': %zu, 'tokens': [], 'finish': []}", step);
  for (size_t i = 0; i < batch_of(wish); ++i) {
    const json_t* end = json_array_get(wish->finish, i);
    const size_t last = json_is_null(end) ? SIZE_MAX : (size_t)num_at(end, 1);
    json_array_append(sub(head, "tokens"),
                      step > last ? json_null() : json_array_get(json_array_get(wish->steps, step), i));
    json_array_append_new(sub(head, "finish"), json_string(step < last ? "" : txt_at(end, 0)));
  }
  if (json_is_array(json_array_get(wish->likely, step)))
    json_object_set(head, "likely", json_array_get(wish->likely, step));
  tell_client(wish, head);
}

static void end_well(Wish* wish) {
  json_t* head = json_pack("{sss[]s[]sfs[]}", "kind", "result", "tokens", "finish", "elapsed_s",
                           now() - wish->submitted, "values");
  for (size_t i = 0; i < batch_of(wish); ++i) {
    const json_t* end = json_array_get(wish->finish, i);
    json_t* tokens = json_array();
    for (size_t k = 0; k <= (size_t)num_at(end, 1); ++k)
      json_array_append(tokens, json_array_get(json_array_get(wish->steps, k), i));
    json_array_append_new(sub(head, "tokens"), tokens), json_array_append(sub(head, "finish"), json_array_get(end, 0));
  }
  end_wish(wish, head);
}

void take_tokens(uint64_t request, const int64_t* drawn, json_t* likely) {
  Wish* wish = wishes;
  while (wish < wishes + WISHES && wish->request != request) ++wish;
  if (wish == wishes + WISHES) return;
  const size_t batch = batch_of(wish);
  uint64_t positions[MOST], lengths[MOST];
  int64_t* tokens = calloc(batch, sizeof *tokens);
  bool is_over = true;
  json_t* step = json_array();
  for (size_t i = 0; i < batch; ++i) json_array_append_new(step, json_integer(drawn[i]));
  if (wish->next == json_array_size(wish->steps)) {  // else it is known, and forced
    json_array_append(wish->steps, step);
    json_array_append(wish->likely, likely ? likely : json_null());
  }
  json_decref(step), step = json_array_get(wish->steps, wish->next++);
  for (size_t i = 0; i < batch; ++i) {
    tokens[i] = num_at(step, i), lengths[i] = 1;
    positions[i] = json_array_size(json_array_get(sub(wish->head, "prompts"), i)) + wish->next - 1;
    const bool stops = has(sub(wish->head, "stop"), tokens[i]) ||
                       (!yes(wish->head, "ignore_eos") && has(sub(sub(build, "model"), "eos_token_ids"), tokens[i]));
    const bool ends = stops || wish->next == (size_t)num(wish->head, "max_new_tokens");
    if (ends && json_is_null(json_array_get(wish->finish, i)))
      json_array_set_new(wish->finish, i, say("['%s', %zu]", stops ? "stop" : "length", wish->next - 1));
    is_over = is_over && !json_is_null(json_array_get(wish->finish, i));
  }
  if (wish->next > wish->told) tell_step(wish, wish->told++);
  wish->progress = now();
  if (is_over) free(tokens), end_well(wish);
  else run_wish(wish, "decode", (size_t)wish->parts + wish->next - 1, positions, lengths, 1, tokens);
}

// ---- clients

static const char* refusal_of(const json_t* head) {
  const json_t *prompts = sub(head, "prompts"), *known = sub(head, "known");
  const size_t batch = json_array_size(prompts);
  if (json_array_size(sub(head, "values")) || yes(head, "trace"))
    return "this source takes token ids, and traces nothing";
  if (batch < 1 || batch > (size_t)limit("max_batch") || num(head, "max_new_tokens") < 1)
    return "no or too many sequences, or no new token";
  if (json_array_size(known) && json_array_size(known) != batch) return "`known` of another number of sequences";
  for (size_t i = 0; i < batch; ++i) {
    const json_t* prompt = json_array_get(prompts, i);
    const int64_t length = (int64_t)json_array_size(prompt), room = limit("max_sequence") - num(head, "max_new_tokens");
    if (length < 1 || length > room) return "a prompt is empty, or longer than max_sequence with its new tokens";
    if (json_array_size(json_array_get(known, i)) != json_array_size(json_array_get(known, 0)))
      return "`known` of different lengths";
    for (int64_t k = 0; k < length; ++k)
      if ((uint64_t)num_at(prompt, (size_t)k) >= (uint64_t)limit("vocab_size"))
        return "a token that the model does not have";
  }
  return NULL;
}

static void submit(Wish* wish, const Route* client, const json_t* head) {
  const char* refusal = refusal_of(head);
  json_decref(wish->head), json_decref(wish->steps), json_decref(wish->likely), json_decref(wish->finish),
      json_decref(wish->end);
  *wish = (Wish){.head = json_deep_copy(head),
                 .steps = json_array(),
                 .likely = json_array(),
                 .finish = json_array(),
                 .client = *client,
                 .number = ++wish_count,
                 .submitted = now(),
                 .progress = now()};
  if (refusal) {
    end_wish(wish, error_of(problem("input", "%s", refusal)));
    return;
  }
  const json_t* known = sub(head, "known");
  for (size_t i = 0; i < batch_of(wish); ++i) json_array_append(wish->finish, json_null());
  for (; wish->told < json_array_size(json_array_get(known, 0)); ++wish->told) {
    json_t* step = json_array();
    for (size_t i = 0; i < batch_of(wish); ++i)
      json_array_append(step, json_array_get(json_array_get(known, i), wish->told));
    json_array_append_new(wish->steps, step), json_array_append_new(wish->likely, json_null());
  }
}

void take_wish(const Route* client, const char* kind, Message* message) {
  const json_t* head = message->head;
  const bool submits = strcmp(kind, "submit") == 0, resumes = strcmp(kind, "resume") == 0;
  Wish *wish = NULL, *free_one = NULL;
  for (Wish* other = wishes; other < wishes + WISHES; ++other) {
    if (other->head && json_equal(sub(other->head, "ticket"), sub(head, "ticket"))) wish = other;
    if ((!other->head || other->end) && (!free_one || other->number < free_one->number)) free_one = other;
  }
  if (strcmp(kind, "shutdown") == 0) {
    for (Peer* peer = peers; peer < peers + peer_count; ++peer)
      if (in_ring(peer)) tell(peer, say("{'kind': 'shutdown'}"));
    poll_wire(200), exit(0);
  } else if (wish && (submits || resumes)) {
    wish->client = *client;
    for (size_t step = (size_t)num(head, "from_step"); step < wish->told; ++step) tell_step(wish, step);
    if (wish->end) tell_client(wish, json_copy(wish->end));
  } else if (submits && free_one) {
    submit(free_one, client, head);
  } else if (wish && !wish->end && strcmp(kind, "cancel") == 0) {
    end_wish(wish, error_of(problem("input", "the request was cancelled")));
  } else if (submits || resumes || strcmp(kind, "place") == 0) {
    json_t* error = error_of(problem("refused", submits   ? "too many requests wait"
                                                : resumes ? "this request is not known here"
                                                          : "this source moves nothing"));
    json_object_set(error, "ticket", sub(head, "ticket"));
    answer(client, error);
  }
}

// ---- the ring

void take_report(Peer* from, const char* kind, Message* message) {
  const json_t* head = message->head;
  const int64_t epoch = num(head, "epoch");
  const bool is_same = from->incarnation == (uint64_t)num(head, "incarnation");
  if (epoch > highest_epoch && epoch < INT64_C(1) << 53) highest_epoch = epoch;
  if (strcmp(kind, "hello") == 0) {
    must_change = must_change || (in_ring(from) && ((from->incarnation && !is_same) || epoch != epoch_of(placement)));
    from->is_ready = from->is_ready && is_same, from->incarnation = (uint64_t)num(head, "incarnation");
  } else if (strcmp(kind, "ready") == 0 && epoch == epoch_of(placement)) {
    from->is_ready = true;
    if ((uint64_t)num(head, "next_request") > next_request) next_request = (uint64_t)num(head, "next_request");
  } else if (strcmp(kind, "unready") == 0) {
    from->is_ready = false;
  } else if (strcmp(kind, "fail") == 0) {
    const json_t* request = sub(head, "request");
    fail(json_is_null(request) ? -1 : json_integer_value(request), yes(head, "earlier"),
         json_deep_copy(sub(head, "problem")));
  } else if (strcmp(kind, "prepared") == 0 && next_placement && epoch == epoch_of(next_placement) && is_same) {
    from->is_prepared = true;
  }
}

// The text of the placement under an epoch. Its id is the SHA-256 of the text without the lines of the id itself and of
// the addresses. Lines stay as they are, since another writer could write a number in another way.
static void seal(int64_t epoch) {
  Buffer parts[2] = {{0}, {0}};  // what is hashed; the new text
  unsigned char digest[crypto_hash_sha256_BYTES];
  char digits[2 * sizeof digest + 1] = "", line[128];
  for (int last = 0; last < 2; ++last) {
    bool in_addresses = false;
    for (char *at = text, *end; *at; at = end) {
      end = at + strcspn(at, "\n") + 1;
      if (strncmp(at, " \"", 2) == 0) in_addresses = strncmp(at, " \"addresses\"", 12) == 0;
      const bool is_epoch = strncmp(at, " \"epoch\"", 8) == 0, is_id = strncmp(at, " \"placement_id\"", 15) == 0;
      if (is_epoch) snprintf(line, sizeof line, " \"epoch\": %ld,\n", epoch);
      if (is_id) snprintf(line, sizeof line, " \"placement_id\": \"%s\",\n", digits);
      if (last || (!in_addresses && !is_id))
        put(&parts[last], is_epoch || is_id ? line : at, is_epoch || is_id ? strlen(line) : (size_t)(end - at));
    }
    crypto_hash_sha256(digest, parts[0].data, parts[0].size);
    sodium_bin2hex(digits, sizeof digits, digest, sizeof digest);
  }
  put(&parts[1], "", 1);
  free(parts[0].data), free(text);
  text = (char*)parts[1].data;
}

// Requests begin anew under new numbers, and their tokens so far are forced: so no device has to keep or to know anything.
static void commit(void) {
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) {
    if (!in_ring(peer)) continue;
    tell(peer, say("{'kind': 'commit', 'placement': '0x%s', 'epoch': %ld, 'incarnation': %ld, 'requests': []}",
                   txt(next_placement->json, "placement_id"), epoch_of(next_placement), (int64_t)peer->incarnation));
    peer->is_ready = false;
  }
  for (Wish* wish = wishes; wish < wishes + WISHES; ++wish)
    if (wish->request) close_request(wish->request, false), wish->request = 0;
  adopt_next();
}

static void change(void) {
  const char* wrong;
  bool all = true, asks = now() > asked_at + kRepeat;
  if (must_change) {
    seal(highest_epoch = (highest_epoch > epoch_of(placement) ? highest_epoch : epoch_of(placement)) + 1);
    free_placement(next_placement);
    next_placement = read_placement(text, strlen(text), &wrong);
    for (Peer* peer = peers; peer < peers + peer_count; ++peer) peer->is_prepared = false;
    must_change = false, asks = true;
  }
  for (Peer* peer = peers; peer < peers + peer_count; ++peer) {
    if (!in_ring(peer) || peer->is_prepared) continue;
    all = false;
    if (asks)
      tell_bytes(
          peer,
          say("{'kind': 'prepare', 'placement': '0x%s', 'epoch': %ld, 'addresses': {}, 'holders': {}, 'requests': [],"
              " 'stands_still': true}",
              txt(next_placement->json, "placement_id"), epoch_of(next_placement)),
          text, strlen(text), SIZE_MAX / 2);
  }
  if (asks) asked_at = now();
  if (all) commit();
}

void tick_source(void) {
  if (must_change || next_placement) change();
  bool stands = links_stand(placement) && !next_placement;
  for (const Peer* peer = peers; peer < peers + peer_count; ++peer)
    stands = stands && (!in_ring(peer) || peer->is_ready);
  for (Wish* wish = wishes; wish < wishes + WISHES; ++wish)
    if (wish->head && !wish->end && now() > wish->progress + kRejoin && (wish->request || !stands))
      end_wish(wish, error_of(stands ? problem("stalled", "a step makes no progress")
                                     : problem("lost-peer", "the ring is not complete")));
  for (int64_t slot = 0; stands && slot < limit("max_requests"); ++slot) {
    Wish* oldest = NULL;
    bool is_free = true;
    for (Wish* wish = wishes; wish < wishes + WISHES; ++wish) {
      is_free = is_free && (!wish->request || wish->slot != (size_t)slot);
      if (wish->head && !wish->end && !wish->request && (!oldest || wish->number < oldest->number)) oldest = wish;
    }
    if (is_free && oldest) oldest->slot = (size_t)slot, begin_wish(oldest), advance();
  }
}

void open_source(void) {
  struct timespec time;
  size_t size;
  clock_gettime(CLOCK_REALTIME, &time);
  first_request = next_request = (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
  text = read_file("placement.json", &size);
}
