// One unit for all of the module: torch's headers take most of the compiler's time, and are read once.

#include "csrc/backend.cc"
#include "csrc/background.cc"
#include "csrc/coalesced.cc"
#include "csrc/collectives.cc"
#include "csrc/errors.cc"
#include "csrc/lists.cc"
#include "csrc/messages.cc"
#include "csrc/module.cc"
#include "csrc/operation.cc"
#include "csrc/sparse.cc"
#include "csrc/store.cc"
#include "csrc/tensors.cc"
