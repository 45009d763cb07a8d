// The C ABI's part about targets: what code is generated for. Here a target is its text.
//
// That is the name of a kind ("cuda"), a tag ("nvidia/h100"), or JSON (docs/target.md). What is
// wrong with it is CGT_INVALID_ARGUMENT, which names the option and lists the known ones. Include
// cgtree/c_api.h.
#ifndef CGTREE_C_API_TARGET_H_
#define CGTREE_C_API_TARGET_H_

#include "cgtree/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// JSON with everything that the target has, defaults too; read again it is the same target.
CGT_API cgt_status cgt_target_json(const char* target, char* buffer, size_t capacity,
                                   size_t* length);
// What a device that is there tells of itself, as such JSON.
CGT_API cgt_status cgt_target_of_device_json(cgt_device device, char* buffer, size_t capacity,
                                             size_t* length);
// The target of the host side; "" if there is none.
CGT_API cgt_status cgt_target_host_json(const char* target, char* buffer, size_t capacity,
                                        size_t* length);
CGT_API cgt_status cgt_target_device_type(const char* target, int32_t* type);
// "" if it was not given and has no default. A string as it is, all else as JSON: 90, true, [1,2].
CGT_API cgt_status cgt_target_option(const char* target, const char* name, char* buffer,
                                     size_t capacity, size_t* length);
CGT_API cgt_status cgt_target_has_key(const char* target, const char* key, int32_t* has);
CGT_API cgt_status cgt_target_has_feature(const char* target, const char* feature, int32_t* has);
// A name for the target of a JSON, with a '/' in it; for the rest of the process, at most 64.
CGT_API cgt_status cgt_target_register_tag(const char* name, const char* json);

#ifdef __cplusplus
}
#endif

#endif  // CGTREE_C_API_TARGET_H_
