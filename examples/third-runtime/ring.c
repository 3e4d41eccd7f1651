#include "ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4096, CLOSED = 64 };

Request requests[SLOTS];
static uint64_t closed[CLOSED], closed_count;  // the last numbers of requests that are over, and 1
static Step* steps;
static int step_count;

static Request* slot_of(const Row* row) { return &requests[row->row / (uint64_t)limit("max_batch")]; }

static bool is_over(const Row* row) {
  const Request* slot = slot_of(row);
  for (int i = 0; i < CLOSED; ++i)
    if (closed[i] == row->request + 1) return true;
  return row->request < first_request || row->request < slot->request ||
         (row->request == slot->request && slot->is_over);
}

static void free_step(Step* step) {
  for (Message* next; step->messages; step->messages = next) next = step->messages->next, free_message(step->messages);
  for (int i = 0; i < step->value_count; ++i) free(step->values[i].bytes);
  json_decref(step->head), json_decref(step->likely), free(step);
}

static void free_steps(uint64_t first, uint64_t last, uint64_t branch) {  // of these requests, of branches below
  for (Step** at = &steps; *at;) {
    Step* step = *at;
    const bool goes = step->rows->request >= first && step->rows->request <= last && step->rows->branch < branch;
    if (goes) *at = step->next, --step_count, free_step(step);
    else at = &step->next;
  }
}

static void append_step(Step* step) {
  Step** end = &steps;
  while (*end) end = &(*end)->next;
  *end = step, ++step_count;
}

void close_request(uint64_t request, bool report) {
  closed[closed_count++ % CLOSED] = request + 1;
  for (Request* slot = requests; slot < requests + SLOTS; ++slot)
    slot->is_over = slot->is_over || slot->request == request;
  free_steps(request, request, UINT64_MAX);
  if (report && !is_source)  // a table without rows: this runtime takes no times
    tell(source(), say("{'kind': 'timings', 'request': %ld, 'device': '%s', 'columns': ['step'],"
                       " 'values': [['timings', 'float64', [0, 1]]]}",
                       (int64_t)request, device));
}

void fail(int64_t request, bool earlier, json_t* why) {
  const uint64_t last = request < 0 ? UINT64_MAX : (uint64_t)request, first = earlier || request < 0 ? 0 : last;
  fprintf(stderr, "%s: %s\n", device, txt(why, "message"));
  for (Request* slot = requests; slot < requests + SLOTS; ++slot)
    slot->is_over = slot->is_over || (slot->request >= first && slot->request <= last);
  free_steps(first, last, UINT64_MAX);
  if (is_source) end_requests(request, earlier, why), json_decref(why);
  else
    tell(source(), json_pack("{sssosbso}", "kind", "fail", "request", request < 0 ? json_null() : json_integer(request),
                             "earlier", earlier, "problem", why));
}

// ---- values that come in

static bool has_names(const Line* line, const json_t* values) {
  bool same = (size_t)line->count == json_array_size(values);
  for (int i = 0; same && i < line->count; ++i)
    same = strcmp(line->names[i], txt_at(json_array_get(values, (size_t)i), 0)) == 0;
  return same;
}

static bool is_awaited(const char* phase, const char* from, const json_t* values) {
  const Program* program = program_of(placement, phase);
  for (const Line* line = program->lines; line < program->lines + program->count; ++line)
    if (line->operation == RECV && strcmp(line->where, from) == 0 && has_names(line, values))
      return !leaves_out(placement, phase, line);
  return false;
}

// Reads phase, rows and sizes of a step from its head; what is wrong with them, or NULL.
static const char* read_rows(Step* step) {
  static const char* kPhases[] = {"chunk", "prefill", "decode", "replay"};
  const json_t* rows = sub(step->head, "rows");
  const Row* first = step->rows;
  for (int i = 0; i < 4; ++i) step->phase = is(step->head, "phase", kPhases[i]) ? kPhases[i] : step->phase;
  step->dims = (Dims){num(sub(step->head, "dims"), "batch"), num(sub(step->head, "dims"), "sequence")};
  const uint64_t count = (uint64_t)step->dims.batch, sequence = (uint64_t)step->dims.sequence,
                 most = (uint64_t)limit("max_sequence");
  if (!step->phase) return "a phase that there is not";
  if (count < 1 || count > 64 || count != json_array_size(rows) || sequence < 1 || sequence > most)
    return "sizes that are not planned";
  for (uint64_t i = 0; i < count; ++i) {
    const json_t* from = json_array_get(rows, i);
    uint64_t fields[6];
    for (size_t k = 0; k < 6; ++k) fields[k] = (uint64_t)num_at(from, k);
    const Row row = step->rows[i] = (Row){fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]};
    const bool same = row.request == first->request, decodes = strcmp(step->phase, "decode") == 0;
    const bool beside = same && row.row == first->row + i && row.step == first->step;
    const bool behind =
        same && row.row == first->row && row.step == first->step + i && row.position == first->position + i && decodes;
    if (!beside && !behind && (same || !decodes)) return "rows that do not follow each other";
    if (row.row >= (uint64_t)(limit("max_requests") * limit("max_batch")) || row.position > most ||
        row.position + sequence > most)
      return "a row that is not planned";
    if (row.length < 1 || row.length > sequence || row.branch > row.step) return "a length or a branch that cannot be";
  }
  return NULL;
}

static const char* check_values(const Step* step, const Peer* from, const Message* message) {
  const json_t* values = sub(message->head, "values");
  if (message->count != json_array_size(values) || !is_awaited(step->phase, from->name, values))
    return "values that are not awaited";
  for (size_t i = 0; i < message->count; ++i) {
    const json_t *value = json_array_get(values, i), *type = type_of(txt_at(value, 0)), *shape = sub(type, "shape");
    const size_t bytes = bytes_of(type, step->dims);
    bool fits = is(type, "dtype", txt_at(value, 1)) &&
                json_array_size(json_array_get(value, 2)) == json_array_size(shape) &&
                zmq_msg_size(&message->frames[i]) == bytes;
    for (size_t k = 0; k < json_array_size(shape); ++k)
      fits = fits && num_at(json_array_get(value, 2), k) == extent(json_array_get(shape, k), step->dims);
    if (!fits) return "a value of another type or shape";
    for (size_t at = 0; at < bytes && sub(placement->sampled, txt_at(value, 0)); at += 8) {
      uint64_t token;
      memcpy(&token, (const char*)zmq_msg_data(&message->frames[i]) + at, 8);
      if (token >= (uint64_t)limit("vocab_size")) return "a token that the model does not have";
    }
  }
  return NULL;
}

void take_values(Peer* from, Message* message) {
  Step *made = calloc(1, sizeof *made), *step = NULL;
  made->head = json_incref(message->head), made->busy = -1;
  const char* wrong = read_rows(made);
  const Row* row = made->rows;
  Request* slot = NULL;
  bool is_late = false;
  if (!wrong) wrong = check_values(made, from, message);
  if (!wrong) slot = slot_of(row), is_late = is_over(row);
  if (slot && slot->request == row->request && row->branch > slot->branch) {  // the request is taken back
    free_steps(row->request, row->request, row->branch);
    if (slot->step > row->branch) slot->positions[0] -= slot->step - row->branch, slot->step = row->branch;
    slot->branch = row->branch;
  }
  is_late = is_late || (slot && slot->request == row->request && row->branch < slot->branch);
  for (Step* other = wrong || is_late ? NULL : steps; other && !step; other = other->next)
    if (other->rows->request == row->request && other->rows->step == row->step && other->rows->branch == row->branch)
      step = other;
  for (const Message* other = step ? step->messages : NULL; other; other = other->next)
    if (json_equal(sub(other->head, "values"), sub(message->head, "values"))) wrong = "values that came before";
  if (!step && step_count == STEPS) wrong = "more steps than there is room for";
  const int64_t request = num_at(json_array_get(sub(message->head, "rows"), 0), 0);
  if (!wrong && !is_late) {
    if (!step) append_step(step = made);
    const json_t* busy = sub(message->head, "busy_s");
    if (json_is_number(busy) && json_number_value(busy) > step->busy) step->busy = json_number_value(busy);
    if (json_array_size(sub(message->head, "likely")))
      json_decref(step->likely), step->likely = json_incref(sub(message->head, "likely"));
    message->next = step->messages, step->messages = message;
  } else free_message(message);
  if (step != made) free_step(made);
  if (wrong) fail(request, true, problem("refused", "%s -> %s: %s", from->name, device, wrong));
}

void drop_steps(void) { free_steps(0, UINT64_MAX, UINT64_MAX); }

void begin_step(json_t* head, const char* name, void* bytes) {
  Step* step = calloc(1, sizeof *step);
  step->head = head, step->busy = -1, step->values[step->value_count++] = (Value){name, bytes};
  read_rows(step), append_step(step);
}

// ---- the programs

static void* value_of(const Step* step, const char* name) {
  for (int i = 0; i < step->value_count; ++i)
    if (strcmp(step->values[i].name, name) == 0) return step->values[i].bytes;
  return NULL;
}

static void set_value(Step* step, const char* name, void* bytes) {
  if (step->value_count == 64) die("a program has more values than this runtime has room for");
  step->values[step->value_count++] = (Value){name, bytes};
}

static json_t* specification(const Step* step, const char* name) {  // [name, dtype, shape]
  const json_t* type = type_of(name);
  json_t *shape = json_array(), *axis;
  size_t i;
  json_array_foreach(sub(type, "shape"), i, axis) json_array_append_new(shape, json_integer(extent(axis, step->dims)));
  return json_pack("[sso]", name, txt(type, "dtype"), shape);
}

static void tell_crossed(const Step* step, const char* peer, const char* name) {  // to whoever traces the request
  if (is_source || !yes(slot_of(step->rows)->opening, "trace")) return;
  json_t* head = say("{'kind': 'crossed', 'request': %ld, 'device': '%s', 'peer': '%s', 'step': %ld}",
                     (int64_t)step->rows->request, device, peer, (int64_t)step->rows->step);
  json_object_set_new(head, "values", json_pack("[o]", specification(step, name)));
  tell_bytes(source(), head, value_of(step, name), bytes_of(type_of(name), step->dims), 65536);
}

static bool receive_line(Step* step, const Line* line) {
  Message* message = step->messages;
  while (message && !has_names(line, sub(message->head, "values"))) message = message->next;
  for (int i = 0; message && i < line->count; ++i) {
    const size_t size = zmq_msg_size(&message->frames[i]);  // a copy: a frame lies at any address
    set_value(step, line->names[i], memcpy(malloc(size + 1), zmq_msg_data(&message->frames[i]), size));
    tell_crossed(step, line->where, line->names[i]);
  }
  return message;
}

static bool run_line(Step* step, const Line* line) {
  void *inputs[64], *outputs[64];
  const double begin = now();
  for (int i = 0; i < line->count; ++i) inputs[i] = value_of(step, line->names[i]);
  const bool done = compute(line->where, step->rows, step->dims, inputs, outputs);
  for (int i = 0; i < line->output_count; ++i) set_value(step, line->outputs[i], outputs[i]);
  step->computed += now() - begin;
  return done;
}

static void sample_line(Step* step, const Line* line) {
  const float* logits = value_of(step, *line->names);
  int64_t* tokens = calloc((size_t)step->dims.batch, sizeof *tokens);
  bool is_wanted = false;
  tell_crossed(step, device, *line->names);
  json_decref(step->likely), step->likely = json_array();
  for (int64_t i = 0; i < step->dims.batch; ++i) {
    const Row* row = &step->rows[i];
    const json_t* sampling = sub(slot_of(row)->opening, "sampling");
    json_t* likely = json_array();
    tokens[i] = draw(logits + i * limit("vocab_size"), sampling, row->row % (uint64_t)limit("max_batch"),
                     row->position + row->length, likely);
    json_array_append_new(step->likely, likely);
    is_wanted = is_wanted || json_array_size(likely);
  }
  if (!is_wanted) json_array_clear(step->likely);
  set_value(step, *line->outputs, tokens);
}

static void send_line(Step* step, const Line* line) {
  const void* values[64];
  size_t sizes[64];
  json_t* head =
      say("{'kind': 'data', 'phase': '%s', 'values': [], 'open': [], 'likely': [], 'busy_s': null}", step->phase);
  json_object_set(head, "dims", sub(step->head, "dims")), json_object_set(head, "rows", sub(step->head, "rows"));
  if (sub(step->head, "open")) json_object_set(head, "open", sub(step->head, "open"));
  if (step->likely) json_object_set(head, "likely", step->likely);
  if (step->busy >= 0)
    json_object_set_new(head, "busy_s", json_real(step->busy > step->computed ? step->busy : step->computed));
  for (int i = 0; i < line->count; ++i) {
    json_array_append_new(sub(head, "values"), specification(step, line->names[i]));
    values[i] = value_of(step, line->names[i]), sizes[i] = bytes_of(type_of(line->names[i]), step->dims);
  }
  send_values(find_peer(line->where), head, values, sizes, (size_t)line->count);
}

static const char* open_request(const Step* step, const Row* row) {
  Request* request = slot_of(row);
  json_t *opening = NULL, *candidate;
  size_t i;
  json_array_foreach(sub(step->head, "open"), i, candidate) if ((uint64_t)num(candidate, "request") == row->request)
      opening = candidate;
  const json_t* reuse = sub(opening, "reuse");  // rows that are kept of the slot's last request
  const uint64_t kept = (uint64_t)num(reuse, "rows");
  if (kept && (request->request != (uint64_t)num(reuse, "request") || request->positions[0] < kept))
    return "rows that are not here are to be kept";
  if (!kept) reset_states(row->row / (uint64_t)limit("max_batch"));
  json_decref(request->opening);
  *request = (Request){
      .request = row->request, .opening = opening ? json_incref(opening) : json_object(), .positions = {kept}};
  return NULL;
}

static size_t sequence_of(const Step* step, const Row* row) {  // its number in its request
  return row->request == step->rows->request ? (size_t)(row->row - step->rows->row) : 0;
}

// Whether a step is the next one of all of its requests. `wrong` says why it never will be.
static bool may_begin(const Step* step, const char** wrong) {
  for (const Row* row = step->rows; row < step->rows + step->dims.batch && !*wrong; ++row) {
    Request* request = slot_of(row);
    if (row > step->rows && row->request == step->rows->request && row->row == step->rows->row)
      continue;  // a guess behind its token
    if (row == step->rows && row->step == 0) *wrong = open_request(step, row);
    if (request->request != row->request || request->step < row->step)
      return false;  // an earlier step comes over another link
    if (request->step > row->step || request->positions[sequence_of(step, row)] != row->position)
      *wrong = "a step that does not follow the last one";
  }
  return !*wrong;
}

static void end_step(const Step* step) {
  for (const Row* row = step->rows; row < step->rows + step->dims.batch; ++row) {
    slot_of(row)->step = row->step + 1;
    slot_of(row)->positions[sequence_of(step, row)] = row->position + row->length;
  }
}

// Whether the values are there that a line reads: a placement comes from the source, as a text.
static bool has_values(const Step* step, const Line* line) {
  for (int i = 0; i < line->count && line->operation != RECV; ++i) {
    const char* name = line->names[i];
    const bool is_given =
        line->operation == RUN && (!strcmp(name, "position") || !strcmp(name, "length") || !strcmp(name, "index"));
    if (!is_given && !value_of(step, name)) return false;
  }
  const size_t logits = (size_t)(step->dims.batch * limit("vocab_size")) * sizeof(float);
  return line->operation != SAMPLE || bytes_of(type_of(*line->names), step->dims) == logits;
}

// Runs a step as far as its messages go; whether it is over.
static bool run_step(Step* step, const char** wrong) {
  const Program* program = program_of(placement, step->phase);
  if (!step->has_begun && !may_begin(step, wrong)) return false;
  for (step->has_begun = true; step->line < program->count; ++step->line) {
    const Line* line = &program->lines[step->line];
    if (leaves_out(placement, step->phase, line)) continue;
    if (line->operation == RECV && !receive_line(step, line)) return false;
    if (!has_values(step, line)) return *wrong = "a program reads a value that is not there", false;
    if (line->operation == RUN && !run_line(step, line)) return *wrong = "the library has no code for this step", false;
    if (line->operation == SAMPLE) sample_line(step, line);
    if (line->operation == SEND) send_line(step, line);
  }
  end_step(step);
  const Line* last = &program->lines[program->count - 1];
  if (last->operation == EMIT && !leaves_out(placement, step->phase, last))
    take_tokens(step->rows->request, value_of(step, *last->names), step->likely);
  return true;
}

void advance(void) {
  for (Step** at = &steps; *at;) {
    Step* step = *at;
    const char* wrong = NULL;
    const uint64_t request = step->rows->request;
    const bool over = (!step->has_begun && is_over(step->rows)) || run_step(step, &wrong);
    if (wrong)
      fail((int64_t)request, false,
           problem("refused", "step %d of request %lu: %s", (int)step->rows->step, request, wrong));
    if (!wrong && !over) {
      at = &step->next;
      continue;
    }
    for (at = &steps; *at && *at != step;) at = &(*at)->next;  // the list has changed
    if (*at) *at = step->next, --step_count, free_step(step);
    at = &steps;  // what waited for it may begin
  }
}
