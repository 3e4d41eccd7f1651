// Values of JSON, which headers of messages are, too: jansson's, with short names for what is read from them. What is not
// there, or of another type, is 0, "" or NULL. Bytes of a header are a text of hexadecimal digits behind "0x".
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

json_t* sub(const json_t* map, const char* key);
int64_t num(const json_t* map, const char* key);
const char* txt(const json_t* map, const char* key);
bool yes(const json_t* map, const char* key);
bool is(const json_t* map, const char* key, const char* text);
int64_t num_at(const json_t* list, size_t index);
const char* txt_at(const json_t* list, size_t index);
json_t* named(const json_t* list, const char* name);  // the item with this `name`

// JSON from a form of printf, with ' for ".
json_t* say(const char* form, ...) __attribute__((format(printf, 1, 2)));

typedef struct {
  uint8_t* data;
  size_t size, room;
} Buffer;
void put(Buffer* to, const void* bytes, size_t size);
json_t* unpack(const void* bytes, size_t size);  // msgpack; NULL: not well-formed, or not allowed in a header
void pack(Buffer* to, const json_t* value);      // whole numbers are unsigned
