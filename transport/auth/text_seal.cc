#include "transport/auth/text_seal.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rondo {
namespace {

// Gives out what has arrived, and takes all that is written.
struct Text final : TlsSession::Carrier {
  std::string_view arrived;
  std::string* out = nullptr;

  long read(void* target, size_t bytes) override {
    const size_t moved = std::min(bytes, arrived.size());
    std::memcpy(target, arrived.data(), moved);
    arrived.remove_prefix(moved);
    return static_cast<long>(moved);
  }
  long write(const void* bytes, size_t size) override {
    out->append(static_cast<const char*>(bytes), size);
    return static_cast<long>(size);
  }
};

}  // namespace

// The carrier takes everything, so each write() counts at once, and the loop ends.
void TextSeal::seal(std::string plain, std::string& out) {
  if (!session_ && out.empty()) {
    out = std::move(plain);
    return;
  }
  if (!session_) {
    out.append(plain);
    return;
  }
  Text text;
  text.out = &out;
  for (std::string_view left = plain; !left.empty();) {
    const long moved = session_->write(text, left.data(), left.size());
    if (moved < 0) return;  // open() has said that the connection is over
    left.remove_prefix(static_cast<size_t>(moved));
  }
}

// The session keeps the part of a record that has not come whole; `arrived` is always used up.
bool TextSeal::open(std::string_view arrived, std::string& plain) {
  if (!session_) {
    plain.append(arrived);
    return true;
  }
  Text text;
  text.arrived = arrived;
  char buffer[TlsSession::kRecordBytes];
  long moved = 0;
  while ((moved = session_->read(text, buffer, sizeof buffer)) > 0) plain.append(buffer, static_cast<size_t>(moved));
  return moved == 0;
}

}  // namespace rondo
