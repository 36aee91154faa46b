// Compiles only if transport/rendezvous/pmix_abi.h says what libpmix's own header does.
//   g++ -std=c++20 -fsyntax-only -I. -I/usr/lib/x86_64-linux-gnu/pmix2/include tests/launchers/pmix_abi.cc
#include "transport/rendezvous/pmix_abi.h"

#include <pmix.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace rondo::pmix {

static_assert(sizeof(Process) == sizeof(pmix_proc_t) && offsetof(Process, rank) == offsetof(pmix_proc_t, rank));
static_assert(sizeof(Value) == sizeof(pmix_value_t) && offsetof(Value, data) == offsetof(pmix_value_t, data));
static_assert(sizeof(Value::type) == sizeof(pmix_value_t::type));
static_assert(sizeof(Info) == sizeof(pmix_info_t) && offsetof(Info, flags) == offsetof(pmix_info_t, flags));
static_assert(offsetof(Info, value) == offsetof(pmix_info_t, value));
static_assert(kSuccess == PMIX_SUCCESS && kTimeout == PMIX_ERR_TIMEOUT && kGlobalScope == PMIX_GLOBAL);
static_assert(kStringType == PMIX_STRING && kIntType == PMIX_INT);
static_assert(std::string_view(kTimeoutKey) == PMIX_TIMEOUT);

// Functions: the same number of arguments of the same sizes.
static_assert(std::is_same_v<Status, pmix_status_t> && std::is_same_v<uint8_t, pmix_scope_t>);
static_assert(std::is_same_v<decltype(&PMIx_Init), Status (*)(pmix_proc_t*, pmix_info_t*, size_t)>);
static_assert(std::is_same_v<decltype(&PMIx_Finalize), Status (*)(const pmix_info_t*, size_t)>);
static_assert(std::is_same_v<decltype(&PMIx_Put), Status (*)(uint8_t, const char*, pmix_value_t*)>);
static_assert(std::is_same_v<decltype(&PMIx_Commit), Commit>);
static_assert(std::is_same_v<decltype(&PMIx_Get),
                             Status (*)(const pmix_proc_t*, const char*, const pmix_info_t*, size_t, pmix_value_t**)>);
static_assert(std::is_same_v<decltype(&PMIx_Error_string), ErrorString>);

}  // namespace rondo::pmix
