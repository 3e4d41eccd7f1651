// The fields of the messages that are taken; any other message is refused.
#include <stdio.h>
#include <string.h>

#include "wire.h"

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

bool is_known(const json_t* head) {  // a kind that is taken here; of those all fields fit
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
