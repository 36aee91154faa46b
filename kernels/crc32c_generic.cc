#include "kernels/crc32c_machine.h"

namespace rondo {

Crc32cUpdate crc32c_instruction() { return nullptr; }

}  // namespace rondo
