#include "mpi/core/external.h"

#include <algorithm>

#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

// Bytes of one value in external32. They are the standard's, not this machine's: long has 4 and wchar_t 2, so larger
// values lose their upper bytes.
MPI_Count external_bytes(const Type& element) {
  if (element.handle == MPI_LONG || element.handle == MPI_UNSIGNED_LONG) return 4;
  if (element.handle == MPI_WCHAR) return 2;
  return element.basic == Basic::kComplex ? element.size / 2 : element.size;
}
// Calls function(bytes here, bytes in external32, signed) for each value of `count` elements, in order.
template <typename Function>
void for_values(const Type& type, MPI_Count count, const Function& function) {
  auto values = [&](const Type& element, MPI_Count number) {
    const MPI_Count bytes = element.basic == Basic::kComplex ? element.size / 2 : element.size;
    if (bytes == 0) return true;
    for (MPI_Count i = 0; i < number * (element.size / bytes); ++i) {
      function(bytes, external_bytes(element), element.basic == Basic::kSigned);
    }
    return true;
  };
  for (MPI_Count i = 0; i < count; ++i) for_elements(type, values);
}

}  // namespace

MPI_Count external_size(const Type& type, MPI_Count count) {
  MPI_Count size = 0;
  for_values(type, 1, [&](MPI_Count, MPI_Count external, bool) { size += external; });
  return product(size, count);
}
// Big-endian: the bytes of each value that it keeps, the other way round.
void to_external(const Type& type, const std::byte* packed, MPI_Count count, std::byte* out) {
  for_values(type, count, [&](MPI_Count bytes, MPI_Count external, bool) {
    std::reverse_copy(packed, packed + external, out);
    packed += bytes;
    out += external;
  });
}
// A signed number that is longer here is filled up with its sign.
void from_external(const Type& type, const std::byte* in, MPI_Count count, std::byte* packed) {
  for_values(type, count, [&](MPI_Count bytes, MPI_Count external, bool is_signed) {
    const bool negative = is_signed && (in[0] & std::byte{0x80}) != std::byte{};
    std::fill_n(std::reverse_copy(in, in + external, packed), bytes - external, std::byte(negative ? 0xff : 0));
    in += external;
    packed += bytes;
  });
}

}  // namespace rondo_mpi
