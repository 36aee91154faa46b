#pragma once

#include <rondo/export.h>

namespace rondo {

// Takes one line of the log. level: 1 warning, 2 info, 3 trace. rank: of the process, -1 where it is not known yet.
// text: without a line end, valid during the call. Must not call the library.
using LogFunction = void (*)(void* context, int level, int rank, const char* text);

// Log lines go to standard error, or to `function` if one is set: for the whole process, from any thread, one call at a
// time. Config::debug says which levels there are. nullptr: standard error. When this has returned, the function set
// before is not called any more.
RONDO_EXPORT void set_log_function(LogFunction function, void* context);

}  // namespace rondo
