#pragma once

#include <functional>
#include <set>
#include <string>

namespace rondo::testing {

// Runs `body` in a process with process ids, a network, System V memory, and /tmp, /var/tmp, /run and /dev/shm of its
// own: so that whatever is there is of the body's making, whatever other programs of the machine do. Needs root. The
// body says what is wrong, "" if nothing is; so does this.
std::string on_own_machine(const std::function<std::string()>& body);

// Everything there that could outlive a process: files, sockets, segments, and processes but the caller. Named, so that
// sets of them can be compared.
std::set<std::string> things_there();

// What a process has open or mapped that has a place in a file system, beyond what the caller has.
std::set<std::string> files_of(int pid);

}  // namespace rondo::testing
