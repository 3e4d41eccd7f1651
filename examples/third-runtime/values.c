#include "values.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 16 };  // nesting of a header that is read

json_t* sub(const json_t* map, const char* key) { return json_object_get(map, key); }
int64_t num(const json_t* map, const char* key) { return json_integer_value(sub(map, key)); }
const char* txt(const json_t* map, const char* key) { return json_string_value(sub(map, key)) ?: ""; }
bool yes(const json_t* map, const char* key) { return json_is_true(sub(map, key)); }
bool is(const json_t* map, const char* key, const char* text) { return strcmp(txt(map, key), text) == 0; }
int64_t num_at(const json_t* list, size_t index) { return json_integer_value(json_array_get(list, index)); }
const char* txt_at(const json_t* list, size_t index) { return json_string_value(json_array_get(list, index)) ?: ""; }

json_t* named(const json_t* list, const char* name) {
  size_t i;
  json_t* item;
  json_array_foreach(list, i, item) if (is(item, "name", name)) return item;
  return NULL;
}

json_t* say(const char* form, ...) {
  char* text;
  va_list values;
  va_start(values, form);
  if (vasprintf(&text, form, values) < 0) abort();
  va_end(values);
  for (char* at = text; *at; ++at) *at = *at == '\'' ? '"' : *at;
  json_t* value = json_loads(text, JSON_DECODE_ANY, NULL);
  free(text);
  return value;
}

// ---- msgpack

typedef struct {
  const uint8_t *at, *end;
} Reader;

static json_t* read_value(Reader* from, int depth);

static bool read_number(Reader* from, size_t bytes, uint64_t* value) {
  if ((size_t)(from->end - from->at) < bytes) return false;
  for (*value = 0; bytes; --bytes) *value = *value << 8 | *from->at++;
  return true;
}

static json_t* read_bytes(Reader* from, size_t size) {
  char* text = calloc(2, size + 2);
  sodium_bin2hex(text + 2, 2 * size + 1, from->at - size, size);
  json_t* value = json_string(memcpy(text, "0x", 2));
  free(text);
  return value;
}

static json_t* read_items(Reader* from, uint64_t size, bool is_map, int depth) {
  json_t* items = is_map ? json_object() : json_array();
  for (bool fits = true; size && fits; --size) {
    json_t *key = is_map ? read_value(from, depth) : NULL, *item = read_value(from, depth);
    const char* name = json_string_value(key);
    fits = item && (!is_map || (name && !sub(items, name)));  // no key stands twice
    if (fits && is_map) json_object_set(items, name, item);
    else if (fits) json_array_append(items, item);
    json_decref(key), json_decref(item);
    if (!fits) json_decref(items), items = NULL;
  }
  return items;
}

static json_t* read_value(Reader* from, int depth) {
  // Heads with a size: it is in the bits of `mask`, or in so many bytes behind the head.
  static const struct {
    uint8_t first, last, mask, bytes, kind;
  } kSized[] = {{0x80, 0x8f, 15, 0, '{'}, {0xde, 0xde, 0, 2, '{'}, {0xdf, 0xdf, 0, 4, '{'},  {0x90, 0x9f, 15, 0, '['},
                {0xdc, 0xdc, 0, 2, '['},  {0xdd, 0xdd, 0, 4, '['}, {0xa0, 0xbf, 31, 0, 't'}, {0xd9, 0xd9, 0, 1, 't'},
                {0xda, 0xda, 0, 2, 't'},  {0xdb, 0xdb, 0, 4, 't'}, {0xc4, 0xc4, 0, 1, 'b'},  {0xc5, 0xc5, 0, 2, 'b'},
                {0xc6, 0xc6, 0, 4, 'b'}};
  uint64_t head, size;
  double real;
  if (depth > DEEPEST || !read_number(from, 1, &head)) return NULL;
  if (head < 0x80) return json_integer((int64_t)head);
  if (head == 0xc0) return json_null();
  if (head == 0xc2 || head == 0xc3) return json_boolean(head & 1);
  if (head == 0xcb) return read_number(from, 8, &size) ? json_real(*(double*)memcpy(&real, &size, 8)) : NULL;
  if (head >= 0xcc && head <= 0xcf)
    return read_number(from, (size_t)1 << (head - 0xcc), &size) ? json_integer((int64_t)size) : NULL;
  for (size_t i = 0; i < sizeof kSized / sizeof *kSized; ++i) {
    if (head < kSized[i].first || head > kSized[i].last) continue;
    size = head & kSized[i].mask;
    if (kSized[i].bytes && !read_number(from, kSized[i].bytes, &size)) return NULL;
    if (size > (size_t)(from->end - from->at)) return NULL;  // every item has a byte at least
    if (kSized[i].kind == '{' || kSized[i].kind == '[') return read_items(from, size, kSized[i].kind == '{', depth + 1);
    from->at += size;
    return kSized[i].kind == 'b' ? read_bytes(from, size) : json_stringn((const char*)from->at - size, size);
  }
  return NULL;  // extension types, numbers below 0
}

json_t* unpack(const void* bytes, size_t size) {
  Reader from = {bytes, (const uint8_t*)bytes + size};
  json_t* value = read_value(&from, 0);
  return from.at == from.end ? value : (json_decref(value), NULL);
}

void put(Buffer* to, const void* bytes, size_t size) {
  if (to->size + size > to->room && !(to->data = realloc(to->data, to->room = 2 * (to->size + size)))) abort();
  if (size) memcpy(to->data + to->size, bytes, size);
  to->size += size;
}

static void put_head(Buffer* to, uint8_t head, uint64_t value, int bytes) {
  put(to, &head, 1);
  while (bytes--) put(to, &(uint8_t){(uint8_t)(value >> 8 * bytes)}, 1);
}

static void put_text(Buffer* to, const char* text) {
  uint8_t bytes[64];
  size_t size = 0;
  if (strncmp(text, "0x", 2) == 0) sodium_hex2bin(bytes, sizeof bytes, text + 2, strlen(text + 2), NULL, &size, NULL);
  put_head(to, size ? 0xc6 : 0xdb, size ? size : strlen(text), 4);
  put(to, size ? (const char*)bytes : text, size ? size : strlen(text));
}

void pack(Buffer* to, const json_t* value) {
  const double real = json_real_value(value);
  const char* key;
  uint64_t bits;
  size_t i;
  json_t* item;
  switch (json_typeof(value)) {
    case JSON_NULL: put_head(to, 0xc0, 0, 0); break;
    case JSON_TRUE: put_head(to, 0xc3, 0, 0); break;
    case JSON_FALSE: put_head(to, 0xc2, 0, 0); break;
    case JSON_INTEGER: put_head(to, 0xcf, (uint64_t)json_integer_value(value), 8); break;
    case JSON_REAL: put_head(to, 0xcb, *(uint64_t*)memcpy(&bits, &real, 8), 8); break;
    case JSON_STRING: put_text(to, json_string_value(value)); break;
    case JSON_ARRAY:
      put_head(to, 0xdd, json_array_size(value), 4);
      json_array_foreach(value, i, item) pack(to, item);
      break;
    case JSON_OBJECT:
      put_head(to, 0xdf, json_object_size(value), 4);
      json_object_foreach((json_t*)value, key, item) put_text(to, key), pack(to, item);
  }
}
