// The calls by name as functions of the library: for languages that cannot include calls_c.h, and for plug-ins that
// look symbols up.
#define RONDO_BY_NAME RONDO_API
#include "rondo/rondo.h"
