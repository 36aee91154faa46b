#pragma once

namespace rondo::launcher {

// Names this process so for ps, pkill and the like, also its command line: a fork shows that of its parent, and who
// kills that one by name would end both. The name is not longer than the program's own.
void take_process_name(const char* name);

}  // namespace rondo::launcher
