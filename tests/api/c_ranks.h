#pragma once

#include <functional>
#include <string>

#include "rondo/rondo.h"
#include "tests/support/rank_group.h"

// What the tests of the C API share.
namespace rondo::testing {

// Throws the last error unless the call gave what it should.
void want(rondo_result_t got, rondo_result_t wanted = RONDO_OK);
// And its text names this.
void want_text(rondo_result_t got, rondo_result_t wanted, const std::string& named);

// One thread a rank; each destroys its own. "" or what the ranks threw.
std::string on_threads(int world, const std::function<void(rondo_comm_t, int)>& body);

}  // namespace rondo::testing
