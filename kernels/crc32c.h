#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4): of "123456789" it is 0xe3069283. `before`: of the bytes in front of
// these. By the processor's instruction where it has one (SSE4.2: some 20 GB/s a core), else by a table.
uint32_t crc32c(const void* data, size_t bytes, uint32_t before = 0);

// By the table, whatever the processor has: for tests.
uint32_t crc32c_by_table(const void* data, size_t bytes, uint32_t before = 0);

}  // namespace rondo
